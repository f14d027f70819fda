"""Tables as they are printed, and as docs/speed.md holds them."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path

import pytest

from tests.bench.__main__ import NODES, answers_table, decisions_table, verbs_table
from tests.bench.cluster import ratio_table, ratios_of, throughput_table
from tests.bench.report import Table, add_options, publish
from tests.bench.throughput import MODES
from tests.bench.workloads import BACKLOGS, DECISIONS, PREEMPTION

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENT = (DOCS / "speed.md").read_text()
WEBHOOK = ["noop-names", "names", "names-unscored", "names-only", "names-best"]  # what docs/webhook-cost.md compares
ALL = throughput_table([mode for mode in MODES if not mode.startswith("names-")])
SHOWN = [answers_table(), decisions_table(), verbs_table(), ALL, ratio_table()]


def first_columns(table: Table, count: int) -> list[tuple[str, ...]]:
    """Returns the first cells of each row of the document's table."""
    lines = table.within(DOCUMENT).splitlines()[2:]
    return [tuple(cell.strip() for cell in line.split("|")[1 : 1 + count]) for line in lines]


@pytest.mark.parametrize("table", SHOWN, ids=lambda table: table.name)
def test_the_document_has_the_columns_that_are_measured(table: Table) -> None:
    assert table.within(DOCUMENT).splitlines()[:2] == str(table).splitlines()


def test_the_document_about_webhooks_has_the_columns_that_are_measured() -> None:
    table = throughput_table(WEBHOOK)
    assert table.within((DOCS / "webhook-cost.md").read_text()).splitlines()[:2] == str(table).splitlines()


def test_the_document_has_the_rows_that_are_measured() -> None:
    decisions = [(workload, str(nodes)) for nodes in NODES for workload in DECISIONS]
    assert first_columns(decisions_table(), 2) == decisions
    assert first_columns(ALL, 1) == [(workload,) for workload in BACKLOGS]
    calls = {call.split(",")[0] for (call,) in first_columns(verbs_table(), 1)}
    assert calls == {"filter", "prioritize", "preempt", "bind"}


def test_the_readme_says_of_decisions_what_the_table_does() -> None:
    cells = [row for row in first_columns(decisions_table(), 4) if row[1] == "5000"]
    stock, ours = ({row[0]: float(row[column]) for row in cells} for column in (2, 3))
    evicting = f"With preemption it is {ours.pop(PREEMPTION):.0f} ms, and {stock.pop(PREEMPTION):.0f} ms in Go;"
    took = f"{min(ours.values()):.1f} to {max(ours.values()):.1f} ms"
    go = f"{min(stock.values()):.0f} to {max(stock.values()):.0f}"
    readme = " ".join((DOCS.parent / "README.md").read_text().split())
    assert f"A decision over 5,000 nodes takes {took}. The scheduler's own plugins in Go take {go} ms for" in readme
    assert evicting in readme


def test_tables_are_printed_and_put_into_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = tmp_path / "README.md"
    document.write_text("before\n<!-- loop -->\n| old |\n<!-- end loop -->\nafter\n")
    table = Table("loop", ["backlog", "ms"])
    table.add(["basic", "0.50"], {"backlog": "basic", "ms": 0.5})
    parser = ArgumentParser()
    add_options(parser)
    publish([table], parser.parse_args(["--write", str(document)]))
    printed = "| backlog | ms |\n|---|--:|\n| basic | 0.50 |"
    assert printed in capsys.readouterr().out
    assert document.read_text() == f"before\n<!-- loop -->\n{printed}\n<!-- end loop -->\nafter\n"
    publish([table], parser.parse_args(["-o", "json"]))
    assert json.loads(capsys.readouterr().out)["loop"] == [{"backlog": "basic", "ms": 0.5}]


def test_a_document_without_a_place_for_a_table_is_an_error() -> None:
    with pytest.raises(LookupError, match="no line `<!-- loop -->`"):
        Table("loop", ["backlog", "ms"]).put_into("text")


def test_a_document_that_does_not_exist_is_an_error_before_the_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = ArgumentParser()
    add_options(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--write", str(tmp_path / "none.md")])
    assert f"argument --write: no such file: {tmp_path / 'none.md'}" in capsys.readouterr().err


def test_a_ratio_is_the_median_of_the_rounds_that_have_both() -> None:
    rounds = [
        {"loop": 900.0, "bind-only": 1000.0, "stock": 300.0},
        {"loop": 700.0, "bind-only": 1000.0},
        {"loop": 800.0, "bind-only": 1000.0, "stock": 200.0},
    ]
    assert ratios_of(rounds) == ["0.80", "3.50", "-"]
