"""The functions of the Kubernetes CEL environment that exist here, compared with the table in docs/cel.md."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from extender.devices.cel.device_selectors import SelectorError, matches
from tests.builders import make_device, make_device_class
from tests.devices.cel.test_device_selectors import device
from tests.stock.api_client import ApiError
from tests.stock.control_plane import ControlPlane

HERE = Path(__file__).parent
TABLE = HERE.parents[2] / "docs" / "cel.md"
FUNCTIONS = [line.split("\t") for line in (HERE / "functions.tsv").read_text().splitlines()]
HEAD = """# CEL in device selectors

The extender evaluates the CEL selectors of device classes and claims itself, by the rules of the API server of
Kubernetes 1.37. A missing function is an error. `no` under "new objects" means that the API server rejects the function
in new objects, but evaluates it in stored ones. `validate` reports as many faults as the API server, in its own words.

A test writes this table: it creates a device class with one expression of each row
(`WRITE_CEL_TABLE=1 pytest -m stock tests/devices/cel/test_functions.py`).

| library | functions | API server, new objects | extender |
|---|---|---|---|
"""


def compiles(expression: str) -> bool:
    try:
        matches(expression, device(make_device("d")))
    except SelectorError as error:
        return error.at_run_time
    return True


def yes(answer: bool) -> str:
    return "yes" if answer else "no"


@pytest.mark.parametrize(("library", "functions", "expression"), FUNCTIONS, ids=[f"{f[0]}: {f[1]}" for f in FUNCTIONS])
def test_the_table_lists_the_supported_functions(library: str, functions: str, expression: str) -> None:
    rows = [row for row in TABLE.read_text().splitlines() if row.startswith(f"| {library} | `{functions}` |")]
    assert [row.split(" | ")[-1] for row in rows] == [f"{yes(compiles(expression))} |"]


@pytest.mark.stock
def test_the_table_agrees_with_the_api_server(control_plane: ControlPlane) -> None:
    rows = []
    for number, (library, functions, expression) in enumerate(FUNCTIONS):
        stored = {**make_device_class(f"class-{number}", expression), "metadata": {"name": f"class-{number}"}}
        try:
            control_plane.client.request("POST", "/apis/resource.k8s.io/v1/deviceclasses?dryRun=All", stored)
            accepted = True
        except ApiError as error:
            accepted = "exceeds cost limit" in str(error)  # it compiles, but may take long for long lists
            assert accepted or "compilation failed" in str(error), functions
        rows.append(f"| {library} | `{functions}` | {yes(accepted)} | {yes(compiles(expression))} |\n")
    if os.environ.get("WRITE_CEL_TABLE"):
        TABLE.write_text(HEAD + "".join(rows))
    assert TABLE.read_text() == HEAD + "".join(rows)
