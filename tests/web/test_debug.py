"""The pages for people who doubt the cache: who may see them, and when."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest
from werkzeug.test import Client

from extender.cache.debugger import CacheDifference, Report
from extender.config.settings import Settings, options_of
from extender.runtime.clock import SystemClock
from extender.web.access import CONFIGZ
from extender.web.app import (
    COMPARE,
    DUMP,
    LOG_LEVEL,
    Backend,
    ExtenderApp,
    PrivatePages,
    change_log_level,
    configz,
    create_app,
    when_ready,
)
from extender.web.metrics import Metrics


@dataclass
class Asked:
    """The calls that were made, and what the next one waits for."""

    done: list[str] = field(default_factory=list)
    missing: str | None = None

    def compare(self) -> Report:
        self.done.append("compare")
        return Report({"Pod": 3, "Table": 2}, [CacheDifference("Pod", "default/p", "is listed, but not cached")])

    def dump(self) -> dict[str, list[str]]:
        self.done.append("dump")
        return {"nodes": []}

    def waiting_for(self) -> str | None:
        return self.missing

    def private(self, settings: Settings) -> PrivatePages:
        pages = {DUMP: when_ready(self.dump, self.waiting_for), CONFIGZ: configz(lambda: settings, "serve")}
        return PrivatePages(pages, {COMPARE: when_ready(self.compare, self.waiting_for), LOG_LEVEL: change_log_level})


def app_over(asked: Asked, **given: str) -> ExtenderApp:
    metrics, settings = Metrics(SystemClock(), "0.0.test"), Settings.model_validate(given)
    service = Backend((), lambda: {"cache": asked.missing}, lambda: None, lambda: None, asked.private(settings))
    return create_app(service, settings, metrics)


def client(asked: Asked, address: str = "127.0.0.1") -> Client:
    app = app_over(asked)

    def from_there(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        return app({**environ, "REMOTE_ADDR": address}, start_response)

    return Client(from_there)


def test_a_comparison_is_answered_with_what_it_found() -> None:
    asked = Asked()
    answer = client(asked).post("/debug/cache/compare")
    assert answer.status_code == 200
    assert answer.content_type == "application/json"
    assert answer.json == {
        "compared": {"Pod": 3, "Table": 2},
        "differences": [{"kind": "Pod", "key": "default/p", "how": "is listed, but not cached"}],
        "undecided": [],
        "unlisted": {},
    }
    assert asked.done == ["compare"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_an_action_needs_a_post(method: str) -> None:
    asked = Asked()
    assert client(asked).open("/debug/cache/compare", method=method).status_code == 405
    assert asked.done == []


@pytest.mark.parametrize(
    ("host", "status"),
    [
        pytest.param("localhost:8888", 200, id="localhost"),
        pytest.param("127.0.0.1", 200, id="an address of this machine"),
        pytest.param("[::1]:8888", 200, id="one of version 6"),
        pytest.param("rebound.example:8888", 403, id="a name that resolves to this machine"),
        pytest.param("localhost.example", 403, id="a name that begins like this machine's"),
        pytest.param("10.0.0.7:8888", 403, id="an address of another machine"),
        pytest.param("2130706433", 403, id="127.0.0.1 as one number"),
        pytest.param("", 403, id="an empty one"),
    ],
)
def test_the_cache_is_shown_only_under_a_host_of_this_machine(host: str, status: int) -> None:
    asked = Asked()
    assert client(asked).get("/debug/cache/dump", headers={"Host": host}).status_code == status
    assert bool(asked.done) == (status == 200)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"Origin": "http://localhost"}, 200, id="a page of this server"),
        pytest.param({"Origin": "http://evil.example"}, 403, id="another site"),
        pytest.param({"Content-Type": "application/x-www-form-urlencoded"}, 415, id="a form"),
        pytest.param({"Content-Type": "application/json"}, 200, id="JSON"),
    ],
)
def test_another_site_may_not_post(headers: dict[str, str], status: int) -> None:
    asked = Asked()
    assert client(asked).post("/debug/cache/compare", headers=headers).status_code == status
    assert bool(asked.done) == (status == 200)


def test_the_dump_is_read_and_not_posted_to() -> None:
    asked = Asked()
    assert client(asked).get("/debug/cache/dump").json == {"nodes": []}
    assert client(asked).post("/debug/cache/dump").status_code == 405
    assert asked.done == ["dump"]


@pytest.mark.parametrize("path", [COMPARE, DUMP])
@pytest.mark.parametrize(
    ("address", "status"),
    [
        pytest.param("127.0.0.1", 200, id="loopback"),
        pytest.param("127.0.0.6", 403, id="a service mesh"),
        pytest.param("::1", 200, id="loopback v6"),
        pytest.param("::ffff:127.0.0.1", 200, id="loopback v4 in v6"),
        pytest.param("10.0.0.7", 403, id="another machine"),
        pytest.param("::ffff:10.0.0.7", 403, id="another machine v4 in v6"),
        pytest.param("fe80::1%eth0", 403, id="link-local"),
        pytest.param("", 403, id="unknown"),
        pytest.param("localhost", 403, id="no address"),
    ],
)
def test_without_certificates_only_this_machine_may_look(path: str, address: str, status: int) -> None:
    asked = Asked()
    answer = client(asked, address).open(path, method="POST" if path == COMPARE else "GET")
    assert answer.status_code == status
    assert bool(asked.done) == (status == 200)


def test_before_the_first_sync_there_is_nothing_to_compare() -> None:
    asked = Asked(missing="waiting for the first list of Pod")
    answer = client(asked).post("/debug/cache/compare")
    assert answer.status_code == 503
    assert answer.json == {"error": "not ready: waiting for the first list of Pod"}
    assert asked.done == []


def test_without_anything_to_show_there_are_no_such_pages() -> None:
    service = Backend((), dict, lambda: None, lambda: None)
    app = create_app(service, Settings.model_validate({}), Metrics(SystemClock(), "0.0.test"))
    here = {"REMOTE_ADDR": "127.0.0.1"}
    assert Client(app).post("/debug/cache/compare", environ_overrides=here).status_code == 404


@pytest.fixture
def unchanged_level() -> Iterator[None]:
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.mark.usefixtures("unchanged_level")
def test_the_log_level_is_changed_at_run_time() -> None:
    answer = client(Asked()).post("/debug/log-level?level=error")
    assert (answer.status_code, answer.json) == (200, {"level": "error"})
    assert logging.getLogger().level == logging.ERROR


@pytest.mark.usefixtures("unchanged_level")
@pytest.mark.parametrize(
    ("method", "query", "address", "status"),
    [
        pytest.param("POST", "level=loud", "127.0.0.1", 400, id="no level"),
        pytest.param("POST", "", "127.0.0.1", 400, id="none given"),
        pytest.param("GET", "level=error", "127.0.0.1", 405, id="not posted"),
        pytest.param("POST", "level=error", "10.0.0.7", 403, id="from another machine"),
    ],
)
def test_the_log_level_stays_as_it_is(method: str, query: str, address: str, status: int) -> None:
    before = logging.getLogger().level
    assert client(Asked(), address).open(f"/debug/log-level?{query}", method=method).status_code == status
    assert logging.getLogger().level == before


def test_the_settings_in_force_are_shown_to_this_machine() -> None:
    reported = client(Asked()).get("/configz").json
    assert reported is not None
    assert reported["extender/v1"].keys() == {option.key for option in options_of("serve")}
    assert reported["extender/v1"]["logLevel"] == "info"
    assert client(Asked(), "10.0.0.7").get("/configz").status_code == 403
