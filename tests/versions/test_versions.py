"""docs/versions.md is made of pytest's reports and of what servers say."""

from __future__ import annotations

from pathlib import Path

from tests.stock.build import KUBERNETES_VERSION, VERSIONS, programs
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


def test_another_version_has_its_own_scheduler_and_api_server() -> None:
    newest, older = ({program.name: program for program in programs(minor)} for minor in ("1.37", "1.35"))
    differing = {name for name in newest if newest[name].key() != older[name].key()}
    assert differing == {"kube-apiserver", "kube-scheduler"}
    assert {older[name].version for name in differing} == {VERSIONS["1.35"]}
    assert {program.version for program in newest.values()} == {KUBERNETES_VERSION}
