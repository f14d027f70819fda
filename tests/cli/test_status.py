"""`extender status` against a real server of pages."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from extender.cli.main import cli
from extender.cli.status import SECTIONS
from extender.errors import ConfigurationError, ExtenderError
from extender.runtime.text import age
from extender.scheduler.modeler import PodView, QueueStatus
from extender.web.answers import Answer
from extender.web.app import PageServer, PrivatePages
from tests.running import command_running
from tests.stock.process import free_port


def view(namespace: str, name: str, **fields: Any) -> PodView:
    given = {"uid": f"uid-{name}", "scheduler_name": "mine", "priority": 0, **fields}
    return PodView(namespace=namespace, name=name, **given)


PICTURE = QueueStatus(
    active=[view("shop", "new", since_seconds=0.2)],
    backoff=[],
    unschedulable=[
        view("shop", "low", attempts=1, refused_by=["NodeAffinity"], since_seconds=59.9),
        view("shop", "high", attempts=12, refused_by=["NodeResourcesFit", "TaintToleration"], priority=9,
             nominated_node="n7", since_seconds=7500.0),
    ],
    gated=[],
    in_flight=[],
    assumed=[view("other", "going", attempts=1, node="n1")],
    arriving=[],
    scheduled=42,
    leading=True,
)  # fmt: skip


@pytest.fixture
def pages() -> dict[str, Answer]:
    """The server's answers by path; a test may change them."""
    return {"/debug/pods": Answer(200, msgspec.json.encode(PICTURE))}


@pytest.fixture
def server(pages: dict[str, Answer]) -> Iterator[str]:
    served = PageServer("127.0.0.1", 0, PrivatePages({"/debug/pods": lambda *_: pages["/debug/pods"]}))
    served.start()
    yield f"http://127.0.0.1:{served.port}"
    served.stop()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["status", *arguments])


def test_status_prints_a_row_for_each_pod(server: str) -> None:
    printed = run("--server", server)
    assert printed.exit_code == 0
    assert printed.stdout.splitlines() == [
        "NAMESPACE   NAME    TIER            ATTEMPTS   SINCE   REFUSED BY                         NODE   NOMINATED",
        "shop        new     active          0          0s      -                                  -      -",
        "shop        high    unschedulable   12         2h      NodeResourcesFit,TaintToleration   -      n7",
        "shop        low     unschedulable   1          59s     NodeAffinity                       -      -",
        "other       going   assumed         1          -       -                                  n1     -",
    ]
    assert printed.stderr == ""


def test_wide_adds_priority_scheduler_and_uid(server: str) -> None:
    header, first, *_ = run("--server", server, "-o", "wide").stdout.splitlines()
    assert header.split()[-3:] == ["PRIORITY", "SCHEDULER", "UID"]
    assert first.split()[-3:] == ["0", "mine", "uid-new"]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_json_and_yaml_hold_what_the_table_shows(server: str, output: str) -> None:
    printed = (json.loads if output == "json" else yaml.safe_load)(run("--server", server, "-o", output).stdout)
    assert printed["scheduled"] == 42
    assert [pod["name"] for pod in printed["pods"]] == ["new", "high", "low", "going"]
    assert printed["pods"][1]["refusedBy"] == ["NodeResourcesFit", "TaintToleration"]
    assert printed["pods"][3] | {"tier": "assumed", "node": "n1"} == printed["pods"][3]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        pytest.param(["--tier", "unschedulable"], ["high", "low"], id="tier"),
        pytest.param(["--tier", "active", "--tier", "assumed"], ["new", "going"], id="tiers"),
        pytest.param(["-n", "other"], ["going"], id="namespace"),
        pytest.param(["low", "shop/new"], ["new", "low"], id="names"),
        pytest.param(["other/low"], [], id="none"),
    ],
)
def test_arguments_choose_the_pods_that_status_shows(server: str, arguments: list[str], names: list[str]) -> None:
    printed = json.loads(run("--server", server, "-o", "json", *arguments).stdout)
    assert [pod["name"] for pod in printed["pods"]] == names


def test_status_without_waiting_pods_says_so(server: str) -> None:
    printed = run("--server", server, "-n", "nowhere")
    assert (printed.exit_code, printed.stdout) == (0, "")
    assert printed.stderr == "no such pods are waiting; 42 pods scheduled so far\n"


def test_status_notes_that_a_standby_schedules_no_pods(server: str, pages: dict[str, Answer]) -> None:
    standby = msgspec.structs.replace(PICTURE, leading=False)
    pages["/debug/pods"] = Answer(200, msgspec.json.encode(standby))
    assert run("--server", server).stderr == "note: this replica is not the leader, so it schedules no pods\n"


def test_status_takes_an_address_without_a_scheme(server: str) -> None:
    assert run("--server", server.removeprefix("http://")).exit_code == 0


def test_status_without_a_server_is_one_line_that_says_what_to_do() -> None:
    """As a user sees it: one line, and what to do."""
    extender, server = Path(sys.executable).parent / "extender", f"http://127.0.0.1:{free_port()}"
    command: list[str | Path] = [extender, "status", "--server", server]
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (printed.returncode, printed.stdout) == (1, "")
    (line,) = printed.stderr.splitlines()
    assert line.startswith("error: no answer from http://127.0.0.1:")
    assert "Connection refused; check that `extender schedule` is running and that --server is" in line


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(404, b'{"error":"nothing is served"}'), id="status"),
        pytest.param(Answer(200, b"<html>"), id="no JSON"),
        pytest.param(Answer(200, b"[]"), id="other JSON"),
    ],
)
def test_status_refuses_the_answer_of_another_program(server: str, pages: dict[str, Answer], answer: Answer) -> None:
    pages["/debug/pods"] = answer
    printed = run("--server", server)
    assert isinstance(printed.exception, ExtenderError)
    assert f"{server}/debug/pods answers {answer.status}, but not with a queue" in str(printed.exception)


@pytest.mark.parametrize("server", ["ftp://x", "http://", "http://x:y"])
def test_a_server_that_is_not_a_url_is_refused(server: str) -> None:
    printed = run("--server", server)
    assert isinstance(printed.exception, ConfigurationError)
    assert printed.exception.faults == (f"--server {server}: expected a URL, such as http://127.0.0.1:8889",)


def test_every_section_of_the_picture_is_explained() -> None:
    printed = run("--help").stdout
    fields = msgspec.to_builtins(PICTURE).keys() - {"scheduled", "leading"}
    assert fields == SECTIONS.keys()
    assert all(name in printed and meaning in printed for name, meaning in SECTIONS.items())


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.9, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172_800, "2d"), (1e6, "11d")]
)
def test_an_age_is_shown_as_kubectl_shows_it(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


def test_pods_are_selected_by_their_labels_and_sorted(pages: dict[str, Answer], server: str) -> None:
    picture = QueueStatus(**{**msgspec.structs.asdict(PICTURE), "active": [
        view("shop", "late", labels={"app": "web"}, since_seconds=9.0),
        view("shop", "early", labels={"app": "web"}, since_seconds=1.0),
        view("shop", "other", labels={"app": "db"}, since_seconds=2.0),
    ]})  # fmt: skip
    pages["/debug/pods"] = Answer(200, msgspec.json.encode(picture))
    selected = run("--server", server, "-l", "app=web", "--sort-by", ".sinceSeconds", "-o", "name")
    assert selected.stdout.splitlines() == ["shop/early", "shop/late"]


def test_watch_prints_the_pods_that_change_until_it_is_interrupted(pages: dict[str, Answer], server: str) -> None:
    command = [
        sys.executable,
        "-c",
        "from extender.cli.main import main; main()",
        "status",
        "--server",
        server,
        "-w",
        "-o",
        "name",
    ]
    with command_running(command, stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        first = [watching.stdout.readline().strip() for _ in range(4)]
        older = view("shop", "new", since_seconds=9.0)
        moved = msgspec.structs.replace(PICTURE, active=[older, view("shop", "newer")], assumed=[])
        pages["/debug/pods"] = Answer(200, msgspec.json.encode(moved))
        changed = watching.stdout.readline().strip()
        watching.send_signal(signal.SIGINT)
        assert (watching.wait(timeout=60), watching.stdout.read()) == (0, "")
    assert first == ["shop/new", "shop/high", "shop/low", "other/going"]
    assert changed == "shop/newer"
