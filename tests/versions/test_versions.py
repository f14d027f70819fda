"""docs/versions.md is made of pytest's reports and of what servers say."""

from __future__ import annotations

from pathlib import Path

from tests.stock.build import KUBERNETES_VERSION, NEXT_MINOR, NEXT_VERSION, VERSIONS, not_served, programs
from tests.versions.changed import differences, newest
from tests.versions.survey import Survey, outcomes
from tests.versions.table import document

REPORT = """<testsuites><testsuite>
<testcase classname="tests.end_to_end.test_a" name="test_right" />
<testcase classname="tests.end_to_end.test_a" name="test_left_out"><skipped message="off in 1.35" /></testcase>
<testcase classname="tests.end_to_end.test_b" name="test_wrong"><failure message="no">trace</failure></testcase>
<testcase classname="tests.end_to_end.test_b" name="test_broken"><error message="no">trace</error></testcase>
</testsuite></testsuites>"""


def test_outcomes_are_read_from_pytests_report(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    failed = ["test_b::test_wrong", "test_b::test_broken"]
    assert outcomes(report) == (1, failed, {"test_a::test_left_out": "off in 1.35"})


def test_the_document_says_what_failed_and_what_differs() -> None:
    surveys = {
        "1.35": Survey("1.35.4", 7, ["test_b::test_wrong"], {"test_a::x": "off"}, ["DeviceTaintRule"], {}),
        "1.37": Survey("1.37.1", 9, [], {}, [], {"StorageCapacityScoring": True, "GenericWorkload": False}),
    }
    text = document(surveys)
    assert "| 1.35.4 | 7 | 1 | 1 | DeviceTaintRule |\n| 1.37.1 | 9 | 0 | 0 | nothing |\n" in text
    assert "\n- 1.35, failed: `test_b::test_wrong`\n- 1.35, left out: `test_a::x`: off\n" in text
    assert "| StorageCapacityScoring | - | on | on |\n" in text
    assert "| GenericWorkload | - | off | off |\n" in text


def test_a_version_whose_servers_cannot_be_built_has_a_row() -> None:
    surveys = {"1.37": Survey("1.37.1", 9, [], {}, [], {})}
    assert f"| {NEXT_VERSION} | not tried: no module | | | |\n" in document(surveys, "no module")
    surveyed = document({**surveys, NEXT_MINOR: Survey(NEXT_VERSION, 9, [], {}, [], {})})
    assert f"| {NEXT_VERSION} | 9 | 0 | 0 | nothing |\n" in surveyed
    assert "not tried:" not in surveyed


def test_modules_that_the_proxy_refuses_are_named_once() -> None:
    refused = "server.go:30:2: k8s.io/a-b@v0.38.0: reading https://proxy/k8s.io/a-b/@v/v0.38.0.zip: 403 Forbidden\n"
    assert not_served(f"go: downloading k8s.io/c v0.38.0\n{refused}{refused}") == ["k8s.io/a-b@v0.38.0"]


def test_the_newest_version_counts_candidates_and_betas() -> None:
    betas = ["v1.38.0-beta.10", "v1.38.0-beta.9", "v1.37.12", "v1.38.0-alpha.11", "v1.39.0-alpha.x"]
    assert newest(betas) == "v1.38.0-beta.10"
    assert newest([*betas, "v1.38.0-rc.0"]) == "v1.38.0-rc.0"
    assert newest([*betas, "v1.38.0-rc.0", "v1.38.0"]) == "v1.38.0"


def test_files_that_differ_are_listed_with_their_lines() -> None:
    before = {"same.go": "a\n", "moved.go": "a\nb\n", "gone.go": "a\n"}
    after = {"same.go": "a\n", "moved.go": "b\na\nc\n", "new.go": "a\nb\n"}
    assert list(differences(before, after)) == ["gone.go +0 -1 (removed)", "moved.go +1 -0", "new.go +2 -0 (new file)"]


def test_another_version_has_its_own_scheduler_and_api_server() -> None:
    newest, older = ({program.name: program for program in programs(minor)} for minor in ("1.37", "1.35"))
    differing = {name for name in newest if newest[name].key() != older[name].key()}
    assert differing == {"kube-apiserver", "kube-scheduler"}
    assert {older[name].version for name in differing} == {VERSIONS["1.35"]}
    assert {program.version for program in newest.values()} == {KUBERNETES_VERSION}
