"""docs/reference.md is what the code lists, and what the code lists is what the processes serve and write."""

from __future__ import annotations

import inspect
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from extender.app.feed import feed_factory_of
from extender.app.live_lookups import log_start
from extender.app.schedule import SchedulerProcess
from extender.app.serve import WebhookProcess, build
from extender.cli.reference import endpoints
from extender.config.settings import Settings
from extender.model.pod import Pod
from extender.plugins.registry import default_profile
from extender.runtime.clock import SystemClock
from extender.runtime.unsettled import UnsettledWrites
from extender.scheduler.scheduler_ports import Attempt, AttemptResult
from extender.table.features import DEFAULT_FEATURES
from extender.verbs.verb import Summary
from extender.web import log
from extender.web.app import Call, Outcome, PodReference, probe_pages, report
from extender.web.log import Traces
from extender.web.metrics import Metrics, SchedulerMetrics
from tests.builders import make_pod
from tests.docs.reference import PAGE, page

EXAMPLE = Path(__file__).parents[2] / "extender/offline/example.yaml"


@pytest.fixture(autouse=True)
def unchanged_root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == page(), "write it again: make docs-reference"


def test_every_path_of_the_webhook_is_listed_with_its_method() -> None:
    rules = build(Settings(cluster=EXAMPLE, simulate=True)).url_map.iter_rules()
    served = {(*(rule.methods or set()) & {"GET", "POST"}, rule.rule) for rule in rules if "/ui/" not in rule.rule}
    listed = {(row["METHOD"], row["PATH"]) for row in endpoints() if "serve" in row["SERVED BY"].split(", ")}
    assert served == listed


def test_every_page_of_the_loop_is_listed() -> None:
    settings = Settings(cluster=EXAMPLE, simulate=True)
    private = WebhookProcess(settings, feed_factory_of(settings), UnsettledWrites(10.0)).upkeep.private_pages()
    own = re.findall(r'"(/[\w/]+)": lambda', inspect.getsource(SchedulerProcess._page_server))
    probes = probe_pages(Metrics(SystemClock(), "0"), list, dict)
    shown = {*own, *probes, *private.pages, *private.actions, *private.body_actions}
    paths = {path for path in shown if not path.startswith("/ui")}
    listed = {row["PATH"] for row in endpoints() if "schedule" in row["SERVED BY"].split(", ")}
    assert own
    assert paths == {path for path in listed if not path.startswith("/ui")}


def test_every_field_of_a_log_line_is_listed() -> None:
    stream = io.StringIO()
    log.configure("json", "info", stream)
    subject, summary = PodReference("u", "shop", "web-0", {}), Summary(20, 8)
    call = Call("filter", Outcome.ERROR, subject, summary, 200, "none", 0.1, 1.0, "", "rules:rule")
    report([call], Metrics(SystemClock(), "0"), Traces())
    pod = msgspec.convert(make_pod("p").scheduler("mine").obj(), Pod)
    SchedulerMetrics(SystemClock(), "0").attempted(Attempt(pod, AttemptResult.ERROR, 0.1, 2, "409: Conflict", "n1"))
    log_start("serve", Settings(), [default_profile()], DEFAULT_FEATURES, ("https://api:6443", "v1.37.1"))
    logging.getLogger("extender").error("failed", exc_info=ValueError("broken"))
    written = {field for line in stream.getvalue().splitlines() for field in json.loads(line)}
    assert written == log.FIELDS.keys()
