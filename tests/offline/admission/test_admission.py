"""Generated pods and workloads are admitted and refused as by a real API server (create with dryRun=All)."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.offline.admission import companions, generator, handmade, placement, refusing_lines, requirements
from tests.offline.admission.comparing import all_of_theirs, cluster, difference, ours, prepare
from tests.offline.admission.generator import made
from tests.offline.admission.recording import COMPANIONS, COUNT, FILE, HANDMADE, recorded
from tests.stock.build import build
from tests.stock.control_plane import ControlPlane

SEED = int(os.environ.get("SEED", "1"))
CASES = int(os.environ.get("ADMISSION_CASES", "100"))


@pytest.mark.parametrize(
    ("file", "count"),
    [
        pytest.param(FILE, COUNT, id="generated"),
        pytest.param(HANDMADE, len(list(handmade.cases())), id="written by hand"),
    ],
)
def test_the_recorded_answers_are_ours(file: Path, count: int) -> None:
    state = cluster()
    cases = list(recorded(file))
    found = [(faults, obj, difference(ours(obj, state), theirs)) for obj, faults, theirs in cases]
    assert [each for each in found if each[2]] == []
    assert len(cases) == count


def test_the_recorded_answers_about_groups_and_claims_are_ours() -> None:
    state = companions.cluster()
    cases = list(recorded(COMPANIONS))
    found = [(title, obj, difference(companions.ours(obj, state), theirs)) for obj, title, theirs in cases]
    assert [each for each in found if each[2]] == []
    assert len(cases) == len(list(companions.cases()))


def test_the_recorded_answers_have_every_kind_of_refusal() -> None:
    refused = Counter(faults[0] for _, faults, theirs in recorded() if theirs.refusal and len(faults) == 1)
    assert _faults() - refused.keys() == set()


def test_the_recorded_answers_have_every_refusal_in_the_code() -> None:
    state, with_claims = cluster(), companions.cluster()

    def all_of_ours() -> None:
        for obj, _, _ in (*recorded(FILE), *recorded(HANDMADE)):
            ours(obj, state)
        for obj, _, _ in recorded(COMPANIONS):
            companions.ours(obj, with_claims)

    executed = refusing_lines.run_by(all_of_ours)
    assert refusing_lines.all_of_them() - executed == set()


@pytest.mark.stock
def test_the_api_server_answers_as_we_do(control_plane: ControlPlane) -> None:
    prepare(control_plane.client)
    state = cluster()
    cases = [(obj, [title]) for title, obj in handmade.cases()]
    cases += [made(SEED, number) for number in range(CASES)]
    theirs = all_of_theirs([obj for obj, _ in cases], control_plane.client)
    found = [
        (number, faults, difference(ours(obj, state), outcome))
        for number, ((obj, faults), outcome) in enumerate(zip(cases, theirs, strict=True))
    ]
    refused = sum(outcome.refusal is not None for outcome in theirs)
    print(f"SEED={SEED} ADMISSION_CASES={CASES}: {refused} of {len(cases)} refused, with those written by hand")
    assert [each for each in found if each[2]] == []


@pytest.mark.stock
def test_the_api_server_answers_about_groups_and_claims_as_we_do(tmp_path: Path) -> None:
    cases = list(companions.cases())
    with companions.GroupPlane(build(), tmp_path) as plane:
        companions.prepare(plane.client)
        theirs = all_of_theirs([obj for _, obj in cases], plane.client, companions.theirs)
    state = companions.cluster()
    found = [
        (title, difference(companions.ours(obj, state), outcome))
        for (title, obj), outcome in zip(cases, theirs, strict=True)
    ]
    assert [each for each in found if each[1]] == []


def _faults() -> set[str]:
    """Returns the names of all that the generator can make wrong, and that the API server refuses."""
    ways = {
        name for module in (generator, placement, requirements) for name, way in vars(module).items() if _is_way(way)
    }
    return {name for name in ways if not name.startswith("_")}


def _is_way(way: object) -> bool:
    code = getattr(way, "__code__", None)
    return code is not None and code.co_argcount == 1 and getattr(way, "__annotations__", {}).get("return") == "None"
