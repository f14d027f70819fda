"""The recorded answers of a real API server.

`python -m tests.offline.admission.recording` records them again: those to the objects in `recorded.jsonl.gz`, which
were drawn at random; with `handmade` as argument those to the pods and workloads that were written by hand, and with
`companions` those to groups and claims.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.builders import Object
from tests.offline.admission import companions, handmade
from tests.offline.admission.comparing import Outcome, all_of_theirs, prepare
from tests.stock.build import build
from tests.stock.control_plane import ControlPlane

FILE = Path(__file__).parent / "recorded.jsonl.gz"
HANDMADE = Path(__file__).parent / "handmade.jsonl.gz"
COMPANIONS = Path(__file__).parent / "companions.jsonl.gz"

Case = tuple[Object, list[str], Outcome]


def recorded(file: Path = FILE) -> Iterator[Case]:
    """Yields each object, what was made wrong in it, and what became of it; the title for one written by hand."""
    for line in gzip.decompress(file.read_bytes()).splitlines():
        case = json.loads(line)
        yield case["object"], case["faults"], Outcome(case["refusal"], case["pod"])


def _asked(drawn: Sequence[tuple[Object, list[str]]]) -> list[Case]:
    with TemporaryDirectory() as directory, ControlPlane(build(), Path(directory)) as plane:
        prepare(plane.client)
        outcomes = all_of_theirs([obj for obj, _ in drawn], plane.client)
    return [(obj, faults, outcome) for (obj, faults), outcome in zip(drawn, outcomes, strict=True)]


def _companions() -> list[Case]:
    drawn = list(companions.cases())
    with TemporaryDirectory() as directory, companions.GroupPlane(build(), Path(directory)) as plane:
        companions.prepare(plane.client)
        outcomes = all_of_theirs([obj for _, obj in drawn], plane.client, companions.theirs)
    return [(obj, [title], outcome) for (title, obj), outcome in zip(drawn, outcomes, strict=True)]


def _write(cases: list[Case], file: Path) -> None:
    lines = (
        json.dumps({"object": obj, "faults": faults, **asdict(outcome)}, sort_keys=True)
        for obj, faults, outcome in cases
    )
    file.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


def main(arguments: Sequence[str]) -> None:
    if "companions" in arguments:
        _write(_companions(), COMPANIONS)
    elif "handmade" in arguments:
        _write(_asked([(obj, [title]) for title, obj in handmade.cases()]), HANDMADE)
    else:
        _write(_asked([(obj, faults) for obj, faults, _ in recorded()]), FILE)


if __name__ == "__main__":
    main(sys.argv[1:])
