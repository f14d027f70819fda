"""A manifest with values of any type anywhere ends in an answer or in MalformedCluster, never in another error."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from extender.errors import MalformedCluster
from extender.offline.manifests.admission import companion
from extender.offline.manifests.templates import required_workload
from extender.offline.state import ClusterState
from tests.builders import Object
from tests.offline.admission import companions, handmade
from tests.offline.admission.comparing import cluster
from tests.offline.admission.recording import recorded

pytestmark = pytest.mark.thorough

_ODD: tuple[Any, ...] = (
    *([1], [], "x", "", 5, {}, True, None, -1, 1e30, float("nan"), "ü", {"a": 1}, [None], [{}], ["x"], 10**30),
    *("1", "-1%", {None: 1}, {1: 2}),
)
_MANIFESTS = 3000


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields (container, key) of everything in a manifest."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield value, key
        yield from _places(inner)


@pytest.mark.parametrize("seed", range(2))
def test_a_manifest_of_odd_values_ends_in_one_kind_of_error(seed: int) -> None:
    random, state = Random(seed), cluster()
    manifests = [*(obj for _, obj in handmade.cases()), *(obj for obj, _, _ in recorded())]
    for _ in range(_MANIFESTS):
        manifest = copy.deepcopy(random.choice(manifests))
        container, key = random.choice(list(_places(manifest)))
        container[key] = copy.deepcopy(random.choice(_ODD))
        _admit(manifest, state)


def test_a_claim_or_a_group_of_odd_values_ends_in_one_kind_of_error() -> None:
    random, manifests = Random(3), [obj for _, obj in companions.cases()]
    for _ in range(_MANIFESTS):
        manifest = copy.deepcopy(random.choice(manifests))
        container, key = random.choice(list(_places(manifest)))
        container[key] = copy.deepcopy(random.choice(_ODD))
        with suppress(MalformedCluster):
            companion(manifest, "manifest")


def _admit(manifest: Object, state: ClusterState) -> None:
    try:
        workload = required_workload(manifest)
        state.admit(workload.pod(workload.manifest["metadata"]["name"]))
    except MalformedCluster:
        pass
