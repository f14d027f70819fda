"""The pages without a browser: statuses, headers, and that every number leads to where it comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from extender.app.live_pages import LookOf, look_at_cluster, look_at_recording, providers
from extender.offline.state import ClusterState
from extender.runtime.process import product_commit, product_version
from extender.snapshots.files import write_snapshot
from extender.snapshots.objects import to_objects
from extender.ui import Choices, Site
from extender.web.access import UI
from extender.web.answers import Answer, Page
from tests.builders import make_node
from tests.offline.recording.recorded import record_timeline

EXAMPLE = Path(__file__).parents[2] / "extender/offline/example.yaml"
GROUPS = Path(__file__).parents[2] / "examples/pod-groups.yaml"
PENDING, FITS = "ml/recommend-7f6d-v4nzs", "shop/api-58b9c-w8x5n"
PAGES = (
    "pending",
    f"pod?pod={PENDING}",
    f"pod?pod={FITS}",
    "nodes",
    f"nodes?pod={PENDING}",
    f"node?node=gpu-a1&pod={PENDING}",
    "compare?with=ClusterAutoscalerProvider",
)


@pytest.fixture(scope="module")
def groups() -> Mapping[str, Page]:
    return pages(look_at_cluster(ClusterState.load(GROUPS), "pod-groups.yaml"))


@pytest.fixture(scope="module")
def example() -> Mapping[str, Page]:
    return pages(look_at_cluster(ClusterState.load(EXAMPLE), "example.yaml", ["what could not be read"]))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Page]:
    path = tmp_path_factory.mktemp("recording") / "names.jsonl.gz"
    record_timeline(path, "names")
    return pages(look_at_recording(path, None))


def pages(look: LookOf) -> Mapping[str, Page]:
    return Site(look, Choices(others=providers())).pages()


def get(site: Mapping[str, Page], address: str) -> Answer:
    parts = urlsplit(address)
    return site[f"{UI}/{parts.path}"](parse_qs(parts.query), "")


class Links(HTMLParser):
    """The links of a page: (address, text)."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._address, self._text = "", ""
        assert answer.status == 200
        self.feed(answer.body.decode())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self._address, self._text = dict(attributes).get("href") or "", ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self.found.append((self._address, self._text))


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere_and_every_number_to_its_json(example: Mapping[str, Page], page: str) -> None:
    links = [(address, text) for address, text in Links(get(example, page)).found if not address.startswith("#")]
    answers = {address: get(example, address) for address in {address for address, _ in links}}
    assert [address for address, answer in answers.items() if answer.status != 200] == []
    numbers = [(address, text) for address, text in links if ".json" in address]
    assert numbers
    for address, text in numbers:
        value = json.loads(answers[address].body)
        if text.isdecimal() and not isinstance(value, dict | list):
            assert value in (int(text), int(text) * 1000) or "requested" in address
        elif text.isdecimal() and "at=" in address and "more" not in text:
            assert len(value) >= int(text)


def test_a_recording_is_shown_step_by_step(recording: Mapping[str, Page]) -> None:
    steps = json.loads(get(recording, "steps.json").body)["steps"]
    begin, end = (len(json.loads(get(recording, f"nodes.json?step={at}").body)["nodes"]) for at in (0, len(steps)))
    assert begin == 0 < end
    asked = next(each["step"] for each in steps if each["kind"] == "call")
    shown = get(recording, f"pending?step={asked}").body.decode()
    assert f'next: call for <a href="pod?step={asked}&amp;pod=' in shown
    links = [address for address, text in Links(get(recording, f"nodes?step={asked}")).found if text == "next"]
    assert links == [f"nodes?step={asked + 1}"]


@pytest.mark.parametrize(
    ("address", "status", "recorded"),
    [
        pytest.param("pod?pod=shop/nobody", 404, "no pod shop/nobody", id="a pod that is not there"),
        pytest.param("node?node=nowhere", 404, "no node nowhere", id="a node that is not there"),
        pytest.param("pod", 400, "give ?pod=", id="no pod"),
        pytest.param("compare?with=nothing", 400, "no configuration nothing", id="no such configuration"),
        pytest.param("steps", 400, "this is not a recording", id="no recording"),
    ],
)
def test_a_missing_object_is_an_error_page_that_names_it(
    example: Mapping[str, Page], address: str, status: int, recorded: str
) -> None:
    page = get(example, address)
    assert (page.status, recorded in page.body.decode()) == (status, True)
    name, _, query = address.partition("?")
    answer = get(example, f"{name}.json?{query}")
    assert (answer.status, recorded in json.loads(answer.body)["error"]) == (status, True)


def test_all_nodes_are_listed_some_at_a_time() -> None:
    nodes = [make_node(f"n{number:03}").obj() for number in range(120)]
    site = pages(look_at_cluster(ClusterState(to_objects(nodes)), "a cluster"))
    listed, address = list[str](), "nodes?find=n"
    while address:
        links = Links(get(site, address)).found
        listed += [text for target, text in links if target.startswith("node?")]
        address = next((target.partition("#")[0] for target, text in links if text == "next"), "")
    assert listed == [node["metadata"]["name"] for node in nodes]


@pytest.mark.parametrize("position", ["-1", "100000", "x", "\u00b2", "\u0663", "1e3", "9" * 5000])
def test_a_position_outside_the_list_is_a_400(
    example: Mapping[str, Page], recording: Mapping[str, Page], position: str
) -> None:
    for site, address in (
        (example, "nodes?from"), (recording, "nodes?step"), (recording, "pending.json?step"), (recording, "steps?step"),
    ):  # fmt: skip
        answer = get(site, f"{address}={position}")
        assert (answer.status, b"expected a number from 0 to" in answer.body) == (400, True)


_NOWHERE = ("/pending/99", "/nothing", "/pending/x", "/pending/0/name/deeper", "/pending/-1", "/pending/" + "9" * 5000)


@pytest.mark.parametrize("at", _NOWHERE)
def test_a_pointer_to_a_missing_value_is_a_400(example: Mapping[str, Page], at: str) -> None:
    assert get(example, f"pending.json?at={at}").status == 400


@pytest.mark.parametrize("path", ["pending", "pending.json", "pod?pod=none", "page.css", "page.js"])
def test_nothing_is_loaded_from_elsewhere_or_kept(example: Mapping[str, Page], path: str) -> None:
    answer = get(example, path)
    headers = dict(answer.headers)
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'self'; script-src 'self'")
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
    assert b"http://" not in answer.body.replace(b"http://www.w3.org/2000/svg", b"")


def test_the_first_page_is_that_of_pending_pods(example: Mapping[str, Page]) -> None:
    found = {path: dict(example[path]({}, "").headers)["Location"] for path in ("/", UI, f"{UI}/")}
    assert found == {"/": "ui/pending", UI: "ui/pending", f"{UI}/": "pending"}


@pytest.mark.parametrize("judged_by", providers())
def test_a_comparison_begins_with_a_configuration_that_differs(judged_by: str) -> None:
    state = ClusterState.load(EXAMPLE, providers()[judged_by])
    document = json.loads(get(pages(look_at_cluster(state, "example.yaml")), "compare.json").body)
    (other,) = providers().keys() - {judged_by}
    assert document["names"] == ["defaults", other]
    assert len(document["moved"]) == 3


def test_a_comparison_with_nothing_different_has_the_first_configuration() -> None:
    look, same = look_at_cluster(ClusterState.load(EXAMPLE), "example.yaml"), providers()["DefaultProvider"]
    site = Site(look, Choices(others={"now.yaml": same, "next.yaml": same})).pages()
    assert json.loads(get(site, "compare.json").body)["names"] == ["defaults", "now.yaml"]


@pytest.mark.parametrize(
    ("page", "share"),
    [
        pytest.param("node?node=gpu-a1", 16.1 / 31.8, id="of a node"),
        pytest.param("nodes?find=gpu-a1", 16.1 / 31.8, id="in the list of nodes"),
    ],
)
def test_a_bar_shows_the_requested_share(example: Mapping[str, Page], page: str, share: float) -> None:
    body = get(example, page).body.decode()
    after = body.partition(">16.1</a>")[2]
    assert re.findall(r'class="filled" width="([\d.]+)"', after)[0] == f"{100 * share:.2f}"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("pending", "No pods are pending."),
        ("nodes", "The cluster has no nodes."),
        ("nodes?find=gpu", "No name contains gpu."),
        ("compare?with=ClusterAutoscalerProvider", "pods end elsewhere"),
    ],
)
def test_the_page_of_an_empty_cluster_says_so(page: str, text: str) -> None:
    answer = get(pages(look_at_cluster(ClusterState(()), "empty.yaml", ())), page)
    assert (answer.status, text in answer.body.decode()) == (200, True)


@pytest.mark.parametrize("page", ["pending", "pod?pod=none"])
def test_the_foot_of_a_page_has_version_and_documentation(monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    example = pages(look_at_cluster(ClusterState.load(EXAMPLE), "example.yaml"))
    monkeypatch.setattr("extender.ui.documentation_address", lambda: "https://forge.example/docs")
    foot = get(example, page).body.decode().partition("<footer")[2]
    assert f"extender {product_version()} (commit {product_commit()})" in foot
    assert '<a href="https://forge.example/docs">documentation</a>' in foot


def test_a_page_of_an_unchanged_cluster_is_not_computed_again() -> None:
    done: list[int] = []
    look = look_at_cluster(ClusterState.load(EXAMPLE), "example.yaml")
    site = Site(look, Choices(progress=lambda at, _: done.append(at))).pages()
    assert get(site, "pending").body == get(site, "pending").body
    assert done == [1, 2, 3, 4, 5, 6]


def test_a_long_list_is_cut_where_calls_must_not_wait() -> None:
    look = look_at_cluster(ClusterState.load(EXAMPLE), "example.yaml")
    site = Site(look, Choices(most_judged=2)).pages()
    document = json.loads(get(site, "pending.json").body)
    assert (len(document["pending"]), document["unjudged"]) == (2, 4)
    assert ">4</a> more pods are pending" in get(site, "pending").body.decode()


def test_pages_change_nothing() -> None:
    state = ClusterState.load(EXAMPLE)
    before = write_snapshot(state.every_object())
    pending = [info.pod for info in state.pending]
    site = pages(look_at_cluster(state, "example.yaml"))
    for page in PAGES:
        get(site, page)
    assert write_snapshot(state.every_object()) == before
    assert [info.pod for info in state.pending] == pending


def test_a_group_is_listed_and_has_a_page(groups: Mapping[str, Page]) -> None:
    listed = Links(get(groups, "pending")).found
    assert ("group?group=ml%2Ftrain", "PodGroup ml/train") in listed
    page = get(groups, "group?group=ml/train")
    assert page.status == 200
    assert "none of its members is placed, because only 4 of 5 waiting members find a node" in page.body.decode()
    assert ("pod?pod=ml%2Ftrain-4", "ml/train-4") in Links(page).found


@pytest.mark.parametrize(
    ("address", "status"),
    [("group?group=ml/none", 404), ("group", 400), ("group?group=ml/train&kind=Pod", 400)],
)
def test_a_group_that_cannot_be_shown(groups: Mapping[str, Page], address: str, status: int) -> None:
    assert get(groups, address).status == status
