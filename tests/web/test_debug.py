"""The pages for people who doubt the cache: who may see them, and when."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from werkzeug.test import Client

from extender.cache.debugger.comparer import CacheDifference, Report
from extender.config.settings import Settings
from extender.runtime.clock import SystemClock
from extender.web.access import ClientAuthorizer
from extender.web.app import Backend, ExtenderApp, create_app
from extender.web.debug import COMPARE, DUMP, Debug, DebugPages
from extender.web.telemetry.metrics import Metrics


@dataclass
class Asked:
    """The calls that were made, and what the next one waits for."""

    done: list[str] = field(default_factory=list)
    missing: str = ""

    def compare(self) -> Report:
        self.done.append("compare")
        return Report({"Pod": 3, "Table": 2}, [CacheDifference("Pod", "default/p", "is listed, but not held")])

    def dump(self) -> dict[str, list[str]]:
        self.done.append("dump")
        return {"nodes": []}

    def debug(self) -> Debug:
        return Debug(self.compare, self.dump, lambda: self.missing)


def app_over(asked: Asked) -> ExtenderApp:
    metrics = Metrics(SystemClock(), "0.0.test")
    service = Backend((), lambda: {"cache": asked.missing}, lambda: None, lambda: None, asked.debug())
    return create_app(service, Settings.model_validate({}), metrics)


def client(asked: Asked, address: str = "127.0.0.1") -> Client:
    app = app_over(asked)

    def from_there(environ: dict[str, object], start_response: object) -> object:
        return app({**environ, "REMOTE_ADDR": address}, start_response)

    return Client(from_there)


def test_a_comparison_is_answered_with_what_it_found() -> None:
    asked = Asked()
    answer = client(asked).post("/debug/cache/compare")
    assert answer.status_code == 200
    assert answer.content_type == "application/json"
    assert answer.json == {
        "compared": {"Pod": 3, "Table": 2},
        "differences": [{"kind": "Pod", "key": "default/p", "how": "is listed, but not held"}],
        "undecided": [],
        "unlisted": {},
    }
    assert asked.done == ["compare"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_what_changes_something_is_posted(method: str) -> None:
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
    ],
)
def test_a_page_in_a_browser_here_is_not_this_machine(host: str, status: int) -> None:
    asked = Asked()
    assert client(asked).get("/debug/cache/dump", headers={"Host": host}).status_code == status
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
        pytest.param("127.8.9.1", 200, id="another loopback"),
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


def test_with_certificates_the_guard_of_all_routes_has_let_the_caller_in() -> None:
    pages = DebugPages(Asked().debug(), ClientAuthorizer(certificate_required=True))
    assert pages.compare({"REMOTE_ADDR": "10.0.0.7"}).status == 200


def test_before_the_first_sync_there_is_nothing_to_compare() -> None:
    asked = Asked(missing="waiting for the first list of Pod")
    answer = client(asked).post("/debug/cache/compare")
    assert answer.status_code == 503
    assert answer.json == {"error": "the extender is not ready: waiting for the first list of Pod"}
    assert asked.done == []


def test_without_anything_to_show_there_are_no_such_pages() -> None:
    service = Backend((), dict, lambda: None, lambda: None)
    app = create_app(service, Settings.model_validate({}), Metrics(SystemClock(), "0.0.test"))
    assert Client(app).post("/debug/cache/compare").status_code == 404
