"""`extender snapshot`: files that the other commands read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders import make_node, make_pod
from tests.cli.test_main import extender


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    items = [make_node("secret-node").capacity(cpu="4").obj(), make_pod("secret-pod").req(cpu="9").obj()]
    (tmp_path / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(tmp_path / "c.json")


@pytest.mark.parametrize("name", ["s.json", "s.json.gz"])
def test_what_is_written_is_read(name: str, cluster: str, tmp_path: Path) -> None:
    path = str(tmp_path / name)
    told = extender("snapshot", "--cluster", cluster, "-o", path)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
    first, again = (extender("explain", "secret-pod", "--cluster", each).stdout for each in (cluster, path))
    assert first == again


def test_standard_output_and_redaction(cluster: str) -> None:
    told = extender("snapshot", "--cluster", cluster, "--redact", "-o", "-")
    assert "secret" not in told.stdout
    again = extender("explain", "--cluster", "-", given=told.stdout)
    assert "Insufficient cpu: wants 9" in again.stdout.replace("Insufficient cpu (cpu:", "Insufficient cpu:")


def test_a_place_that_cannot_be_written(cluster: str) -> None:
    told = extender("snapshot", "--cluster", cluster, "-o", "/nowhere/s.json")
    assert told.returncode == 2
    assert len(told.stderr.splitlines()) == 1
