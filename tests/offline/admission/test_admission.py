"""What scheduling reads of a new object is admitted and refused as by a real API server (create with dryRun=All)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from extender.errors import MalformedCluster
from extender.model.meta import Object
from extender.offline.manifests.admission import admitted
from tests.offline.admission import companions, handmade, refusing_lines
from tests.offline.admission.comparing import all_of_theirs, cluster, difference, ours, prepare
from tests.offline.admission.recording import COMPANIONS, FILE, HANDMADE, recorded
from tests.offline.manifests.test_newer_checks import REFUSED_SINCE_1_38
from tests.stock.build import build
from tests.stock.control_plane import ControlPlane


@pytest.mark.parametrize("file", [pytest.param(FILE, id="drawn"), pytest.param(HANDMADE, id="written by hand")])
def test_the_recorded_answers_are_ours(file: Path) -> None:
    state = cluster()
    found = [(title, obj, difference(ours(obj, state), theirs)) for obj, title, theirs in recorded(file)]
    assert [each for each in found if each[2]] == []


def test_the_recorded_answers_about_groups_and_claims_are_ours() -> None:
    state = companions.cluster()
    cases = list(recorded(COMPANIONS))
    found = [(title, obj, difference(companions.ours(obj, state), theirs)) for obj, title, theirs in cases]
    assert [each for each in found if each[2]] == []


def test_every_object_that_was_written_by_hand_has_a_recorded_answer() -> None:
    for file, cases in ((HANDMADE, handmade.cases()), (COMPANIONS, companions.cases())):
        assert [titles for _, titles, _ in recorded(file)] == [[title] for title, _ in cases]


@pytest.mark.thorough
def test_the_recorded_answers_have_every_refusal_in_the_code() -> None:
    state, with_claims = cluster(), companions.cluster()

    def all_of_ours() -> None:
        for obj, _, _ in (*recorded(FILE), *recorded(HANDMADE)):
            ours(obj, state)
        for obj, _, _ in recorded(COMPANIONS):
            companions.ours(obj, with_claims)
        for case in REFUSED_SINCE_1_38:  # the API server that answered is older
            with suppress(MalformedCluster):
                admitted(cast(Object, case.values[0]), with_claims.objects, checks_more=True)

    executed = refusing_lines.run_by(all_of_ours)
    assert refusing_lines.all_of_them() - executed == set()


@pytest.mark.stock
def test_the_api_server_answers_as_we_do(control_plane: ControlPlane) -> None:
    prepare(control_plane.client)
    state = cluster()
    cases = [(titles, obj) for file in (FILE, HANDMADE) for obj, titles, _ in recorded(file)]
    theirs = all_of_theirs([obj for _, obj in cases], control_plane.client)
    found = [
        (titles, difference(ours(obj, state), outcome)) for (titles, obj), outcome in zip(cases, theirs, strict=True)
    ]
    assert [each for each in found if each[1]] == []


@pytest.mark.slow
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
