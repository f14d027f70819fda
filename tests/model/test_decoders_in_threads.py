"""Decoders are built at import, because msgspec crashes if two threads are the first to decode a type."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "extender"
POD = (
    b'{"metadata":{"name":"p","uid":"u","labels":{"a":"b"}},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]'
    b',"affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":5,"podAffinityTerm":'
    b'{"topologyKey":"k","labelSelector":{"matchLabels":{"app":"a"}}}}]}}},"status":{"phase":"Running"}}'
)
FILTER = b'{"NodeNames":["n"],"Pod":' + POD + b"}"
TWELVE = """
import sys, threading
import msgspec
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(12)
def first():
    barrier.wait()
    call()
threads = [threading.Thread(target=first) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
FIRST_CALLS = {
    "a filter call": f"from extender.extender_v1.messages import decode_args\ndef call(): decode_args({FILTER!r})",
    "a pod given to the library": f"""
from extender.snapshots.objects import to_pod
def call(): to_pod(msgspec.json.decode({POD!r}))""",
    "a pod of a watch": f"""
from extender.model.kinds import KINDS
def call(): msgspec.json.Decoder(KINDS["Pod"].type).decode({POD!r})""",
}


@pytest.mark.processes
@pytest.mark.parametrize("call", [pytest.param(call, id=name) for name, call in FIRST_CALLS.items()])
def test_twelve_first_calls_at_once(call: str) -> None:
    command = [sys.executable, "-c", call + TWELVE]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PACKAGE.parent)
    assert (ended.returncode, ended.stderr) == (0, "")


def decoders_made_late(path: Path) -> Iterator[str]:
    """Returns the decoders that are built inside a function."""
    text = path.read_text()
    for function in ast.walk(ast.parse(text)) if "msgspec.json." in text else ():
        if isinstance(function, ast.FunctionDef):
            for call in ast.walk(function):
                if isinstance(call, ast.Call):
                    name, keywords = ast.unparse(call.func), {keyword.arg for keyword in call.keywords}
                    if name == "msgspec.json.Decoder" or (name == "msgspec.json.decode" and "type" in keywords):
                        yield f"{path.relative_to(PACKAGE)}: {ast.unparse(call)}"


def test_all_decoders_are_built_at_import() -> None:
    late = [each for path in sorted(PACKAGE.rglob("*.py")) for each in decoders_made_late(path)]
    # Pages are types of their own, and each watch makes its own before its thread starts. Raw is no struct. A custom
    # type is prepared when custom_kind creates it.
    excepted = (
        "cluster/watch/api_objects.py",
        "model/kinds.py: msgspec.json.Decoder(kind.type)",
        "model/kinds.py: msgspec.json.decode(data, type=kind)",
        "snapshots/files.py: msgspec.json.decode(data, type=msgspec.Raw)",
    )
    assert [each for each in late if not each.startswith(excepted)] == []
