"""The recorded answers of a real API server; `python -m tests.offline.admission.recording` records them again."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.builders import Object
from tests.offline.admission.comparing import Outcome, all_of_theirs, prepare
from tests.offline.admission.generator import made
from tests.stock.build import build
from tests.stock.control_plane import ControlPlane

FILE = Path(__file__).parent / "recorded.jsonl.gz"
COUNT = 300
_SEED, _DRAWN = 34, 8000
_OF_A_FAULT = 2
_ADMITTED = 150

Case = tuple[Object, list[str], Outcome]


def recorded() -> Iterator[Case]:
    """Yields each object, what was made wrong in it, and what became of it."""
    for line in gzip.decompress(FILE.read_bytes()).splitlines():
        case = json.loads(line)
        yield case["object"], case["faults"], Outcome(case["refusal"], case["pod"])


def _chosen(cases: list[Case]) -> list[Case]:
    """Returns some cases of every fault alone, as many as wanted that are admitted, and others."""
    seen: Counter[str] = Counter()
    chosen: list[Case] = []
    for case in cases:
        _, faults, outcome = case
        if outcome.refusal is not None and len(faults) == 1 and seen[faults[0]] < _OF_A_FAULT:
            seen[faults[0]] += 1
            chosen.append(case)
    admitted = [case for case in cases if case[2].refusal is None][:_ADMITTED]
    without_fault = [case for case in cases if case[2].refusal is not None and not case[1]]
    return [*chosen, *admitted, *without_fault][:COUNT]


def main() -> None:
    drawn = [made(_SEED, number) for number in range(_DRAWN)]
    with TemporaryDirectory() as directory, ControlPlane(build(), Path(directory)) as plane:
        prepare(plane.client)
        outcomes = all_of_theirs([obj for obj, _ in drawn], plane.client)
    cases = [(obj, faults, outcome) for (obj, faults), outcome in zip(drawn, outcomes, strict=True)]
    lines = (
        json.dumps({"object": obj, "faults": faults, **asdict(outcome)}, sort_keys=True)
        for obj, faults, outcome in _chosen(cases)
    )
    FILE.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


if __name__ == "__main__":
    main()
