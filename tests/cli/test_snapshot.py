"""`extender snapshot`: files that the other commands read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import make_node, make_pod
from tests.cli.commands import extender

MAIN = "import sys; from extender.cli.main import main; sys.argv[0] = 'extender'; main()"


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    items = [make_node("secret-node").capacity(cpu="4").obj(), make_pod("secret-pod").req(cpu="9").obj()]
    (tmp_path / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(tmp_path / "c.json")


@pytest.mark.parametrize("name", ["s.json", "s.json.gz"])
def test_a_snapshot_is_explained_like_its_cluster(name: str, cluster: str, tmp_path: Path) -> None:
    path = str(tmp_path / name)
    printed = extender("snapshot", "--cluster", cluster, "-o", path)
    assert (printed.returncode, printed.stdout, printed.stderr) == (0, "", "")
    first, again = (extender("explain", "secret-pod", "--cluster", each).stdout for each in (cluster, path))
    assert first == again


def test_standard_output_and_redaction(cluster: str) -> None:
    printed = extender("snapshot", "--cluster", cluster, "--redact", "-o", "-")
    assert "secret" not in printed.stdout
    again = extender("explain", "--cluster", "-", given=printed.stdout)
    assert "Insufficient cpu (requests 9; " in again.stdout


def test_an_answer_about_a_redacted_snapshot_is_translated_with_the_key(cluster: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef\n")
    snapshots = [
        extender("snapshot", "--cluster", cluster, "--redact", "--redact-key", str(key), "-o", "-") for _ in range(2)
    ]
    assert snapshots[0].stdout == snapshots[1].stdout
    answer = extender("explain", "--cluster", "-", given=snapshots[0].stdout).stdout
    assert "secret" not in answer
    translated = extender("translate", "-", "--cluster", cluster, "--redact-key", str(key), given=answer)
    assert translated.returncode == 0
    assert re.search("default +secret-pod", translated.stdout)


def test_a_key_that_can_be_guessed_is_refused(cluster: str, tmp_path: Path) -> None:
    missing = extender("snapshot", "--cluster", cluster, "--redact", "--redact-key", "none", "-o", "-")
    assert (missing.returncode, missing.stderr.startswith("error: none: no such file; `head -c 32")) == (2, True)
    (tmp_path / "key").write_text("short")
    arguments = ["snapshot", "--cluster", cluster, "--redact-key", str(tmp_path / "key"), "-o", "-"]
    answer = extender(*arguments, "--redact")
    assert (answer.returncode, answer.stdout) == (2, "")
    path = tmp_path / "key"
    advice = f"`head -c 32 /dev/urandom | base64 > {path}` makes a key"
    assert answer.stderr == f"error: {path}: expected a key of at least 16 bytes, got 5; {advice}\n"
    assert extender(*arguments).stderr == "error: --redact-key needs --redact\n"


def test_a_path_that_cannot_be_written_is_refused(cluster: str) -> None:
    printed = extender("snapshot", "--cluster", cluster, "-o", "/nowhere/s.json")
    assert printed.returncode == 2
    assert len(printed.stderr.splitlines()) == 1


@pytest.mark.processes
def test_a_write_that_fails_half_way_leaves_the_old_file(cluster: str, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text("what was there")
    command = f'ulimit -f 0; exec "{sys.executable}" -c "{MAIN}" snapshot --cluster "{cluster}" -o "{path}"'
    printed = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=120, check=False)
    assert (printed.returncode, printed.stderr) == (1, f"error: {path}: File too large\n")
    assert path.read_text() == "what was there"
    assert {each.name for each in tmp_path.iterdir()} == {"c.json", "s.json"}


def test_an_overwritten_file_keeps_its_permissions(cluster: str, tmp_path: Path) -> None:
    path, link = tmp_path / "s.json", tmp_path / "link.json"
    path.touch(0o600)
    link.symlink_to(path)
    assert extender("snapshot", "--cluster", cluster, "-o", str(link)).returncode == 0
    assert (path.stat().st_mode & 0o777, link.is_symlink()) == (0o600, True)
    assert b"secret-pod" in path.read_bytes()


@pytest.mark.processes
def test_a_closed_standard_output_is_one_line(cluster: str) -> None:
    command = f'exec "{sys.executable}" -c "{MAIN}" snapshot --cluster "{cluster}" -o - >&-'
    printed = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert printed.returncode == 2
    assert printed.stderr == "error: -o -: standard output is closed; give a file with -o FILE\n"
