"""Snapshots and policies as they should not be: one clear line each, no traceback, in bounded memory and time."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.builders import make_node, make_pod

pytestmark = pytest.mark.slow

NODE, POD = make_node("n").obj(), make_pod("p").req(cpu="1").obj()
MEMORY_BYTES = 1024 * 1024 * 1024
SECONDS = 180


def cluster(*items: Any) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [NODE, POD, *items]})


def with_pod(text: str, value: str) -> str:
    """The cluster, the pod's cpu request as the given JSON or YAML text."""
    assert '"cpu": "1"' in text
    return text.replace('"cpu": "1"', f'"cpu": {value}')


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{this}: &{this} [{', '.join([f'*{before}'] * 9)}]\n" for before, this in zip("abcdefgh", "bcdefghi", strict=True)
)
KINDLESS = "apiVersion: v1\nkind: List\nitems: []\n"

HOSTILE = [
    pytest.param(b"[" * 1_000_000, id="brackets without end"),
    pytest.param(b"{a: " * 1_000_000, id="braces without end"),
    pytest.param(b'{"kind":"List","items":' + b"[" * 1_000_000, id="JSON brackets without end"),
    pytest.param(b'{"a":' * 1_000_000, id="JSON braces without end"),
    pytest.param(b"- " * 1_000_000, id="dashes without end"),
    pytest.param(LAUGHS.encode(), id="a billion laughs"),
    pytest.param((LAUGHS + KINDLESS).encode(), id="a billion laughs before a list"),
    pytest.param(b"&a [*a, *a]", id="an alias of itself"),
    pytest.param(b"kind: !!python/object/apply:os.system [id]", id="a tag"),
    pytest.param(b"\xff\xfe\x00\xd8", id="no text at all"),
    pytest.param(b'{"kind":"Node","apiVersion":"v1","metadata":{"name":"\xff\xfe"}}', id="no UTF-8"),
    pytest.param(b"kind: Node\nkind: Node", id="a key twice"),
    pytest.param(b"kind: " + b"9" * 100_000, id="a number of 100,000 digits"),
    pytest.param(b"kind: .nan", id="NaN for a kind"),
    pytest.param(b'{"kind": NaN}', id="JSON NaN"),
    pytest.param(b'{"kind": 1e999999}', id="a number beyond all"),
    pytest.param(b"\x00" * 1000, id="zeros"),
    pytest.param(b"x" * 10_000_000, id="a word of 10 MB"),
    pytest.param(b"a: 'x", id="a quote that does not end"),
    pytest.param(b"'" * 100_001, id="quotes"),
    pytest.param(b"!" * 100_000, id="exclamation marks"),
    pytest.param(b"%YAML 9.9\n---\n" * 1000, id="directives"),
]

ODD_CLUSTERS = [
    *HOSTILE,
    pytest.param(with_pod(cluster(), '"1Gx"').encode(), id="no quantity"),
    pytest.param(with_pod(cluster(), '"NaN"').encode(), id="NaN as a quantity"),
    pytest.param(with_pod(cluster(), '"' + "9" * 300 + '"').encode(), id="300 digits"),
    pytest.param(with_pod(cluster(), "NaN").encode(), id="NaN as a number"),
    pytest.param(with_pod(cluster(), '"1_000"').encode(), id="underscores"),
    pytest.param(with_pod(cluster(), "[[]]").encode(), id="a list as a quantity"),
    pytest.param(cluster({**NODE, "metadata": {"name": "HEX"}}).replace('"HEX"', "0x" + "f" * 9000).encode(), id="hex"),
    pytest.param(cluster({**NODE, "metadata": {"name": 5}}).encode(), id="a number as a name"),
    pytest.param(cluster({**NODE, "metadata": None}).encode(), id="no metadata"),
    pytest.param(cluster(3).encode(), id="a number as an object"),
    pytest.param(cluster(NODE).encode(), id="an object twice"),
    pytest.param(cluster({**NODE, "spec": {"taints": {"a": 1}}}).encode(), id="a map as a list"),
]

FINE_CLUSTERS = [
    pytest.param(with_pod(cluster(), '"1e999999999"'), id="more than there is"),
    pytest.param(with_pod(cluster(), '"9223372036854775808Ei"'), id="beyond 64 bits"),
    pytest.param(with_pod(cluster(), '"0.0000000000001n"'), id="next to nothing"),
    pytest.param(cluster({**NODE, "metadata": {"name": "\r\nX: y\x1b[31m{{7*7}}"}}), id="a name that steers terminals"),
]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`extender explain` with little memory and little time."""
    return subprocess.run(
        [Path(sys.executable).parent / "extender", "explain", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={"OPENBLAS_NUM_THREADS": "1", "PATH": ""},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)),
    )


def is_one_clear_line(done: subprocess.CompletedProcess[str]) -> bool:
    lines = done.stderr.splitlines()
    return done.returncode in (1, 2) and not done.stdout and len(lines) == 1 and len(lines[0]) < 2000


@pytest.mark.parametrize("content", ODD_CLUSTERS)
@pytest.mark.parametrize("name", ["c.yaml", "c.json"])
def test_a_faulty_cluster_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    done = run("default/p", "--cluster", path)
    assert is_one_clear_line(done), (done.returncode, done.stdout[:500], done.stderr[-2000:])


@pytest.mark.parametrize("content", HOSTILE)
def test_a_faulty_policy_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.json").write_text(cluster())
    (tmp_path / "p.yaml").write_bytes(content)
    done = run("default/p", "--cluster", tmp_path / "c.json", "--policy", tmp_path / "p.yaml")
    assert is_one_clear_line(done), (done.returncode, done.stdout[:500], done.stderr[-2000:])


@pytest.mark.parametrize("content", FINE_CLUSTERS)
def test_odd_but_valid_input_is_answered(tmp_path: Path, content: str) -> None:
    (tmp_path / "c.json").write_text(content)
    done = run("default/p", "--cluster", tmp_path / "c.json")
    assert done.returncode in (0, 3), done.stderr
    assert done.stdout.startswith("pod default/p: ")
    assert "\x1b" not in done.stdout


def test_a_cluster_of_sense_needs_no_more_memory_than_that(tmp_path: Path) -> None:
    """So the limit is none for what is ordinary."""
    (tmp_path / "c.json").write_text(cluster())
    assert "1/1 nodes are available" in run("default/p", "--cluster", tmp_path / "c.json").stdout
