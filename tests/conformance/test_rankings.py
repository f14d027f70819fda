"""The best nodes by a template's ranking are those of a decision from scratch, whatever comes between two replicas.

RANKING_SEED=N draws other cases and events; RANKING_CASES=N as many of each kind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

import pytest
from msgspec import structs

from extender.errors import MalformedCluster, RuleFailed
from extender.framework.find_fit import find_fit, score
from extender.framework.profile import Profile, Profiles
from extender.framework.rankings import Rankings
from extender.framework.status import Code
from extender.model.pod import Pod
from extender.offline.state import ClusterState
from extender.policy.loading import read as policy
from extender.snapshots.objects import to_object, with_defaults
from extender.table import PodInfo
from tests.builders import Object
from tests.conformance.cases import KINDS, named

pytestmark = pytest.mark.thorough

SEED = int(os.environ.get("RANKING_SEED") or 1)
OF_A_KIND = int(os.environ.get("RANKING_CASES") or 6)
STEPS = 24


def cluster_of(case: Object) -> ClusterState:
    profiles = policy(case["config"]).profiles if "config" in case else None
    found = [to_object(item, "items") for item in (*case["cluster"]["items"], case["pod"])]
    return ClusterState(with_defaults([obj for obj in found if obj]), Profiles(profiles) if profiles else None)


def from_scratch(profile: Profile, pod: PodInfo, state: ClusterState) -> list[int] | None:
    """The best rows; None where a rule could not tell."""
    fit = find_fit(profile, pod, state.table, state.table.nodes.rows)
    if any(refusal.code is Code.ERROR for refusal in fit.refusals):
        return None
    if len(fit.feasible) < 2:
        return [*map(int, fit.feasible)]
    total = score(profile, pod, state.table, fit.feasible).total
    return [*map(int, fit.feasible[total == total.max()])]


class Story:
    """Replicas of a few templates that are placed one after another, while the cluster changes."""

    def __init__(self, state: ClusterState, random: Random) -> None:
        self.state, self._random = state, random
        self._templates = [info.pod for info in state.infos.values()][-4:]
        self._rankings = {name: Rankings(state.profiles.of(self._like(name))) for name in state.profiles.names}
        self.ranked = 0

    def _like(self, name: str) -> Pod:
        return structs.replace(self._templates[0], spec=structs.replace(self._templates[0].spec, scheduler_name=name))

    def replicas(self) -> Iterator[PodInfo]:
        for number in range(STEPS):
            template = self._random.choice(self._templates)
            name = f"{template.name}-{number}"
            metadata = structs.replace(template.metadata, name=name, uid=name, deletion_timestamp=None)
            spec = structs.replace(template.spec, node_name="")
            yield PodInfo(structs.replace(template, metadata=metadata, spec=spec).nominated_to(""))

    def place(self, replica: PodInfo) -> None:
        profile = self.state.profiles.of(replica.pod)
        expected = from_scratch(profile, replica, self.state)
        found = self._rankings[profile.name].best(replica, self.state.table)
        if found is not None:
            self.ranked += 1
            assert found.rows.tolist() == expected
        if expected:
            node = self.state.table.nodes.names[self._random.choice(expected)]
            self.state.add_info(PodInfo(replica.pod.placed_on(node)))

    def disturb(self) -> None:
        match self._random.randrange(8):
            case 0:
                self.state.remove_pod(self._random.choice(list(self.state.infos.values())))
            case 1:
                nodes = [self.state.table.nodes.node(row) for row in self.state.table.nodes.rows.tolist()]
                one, other = self._random.choice(nodes), self._random.choice(nodes)
                labels = structs.replace(one.metadata, labels=other.metadata.labels)
                self.state.add(structs.replace(one, metadata=labels, spec=other.spec))
            case 2:
                info = self._random.choice(list(self.state.infos.values()))
                deleted = structs.replace(info.pod.metadata, labels={"app": self._random.choice(("web", "db"))})
                self.state.add_info(PodInfo(structs.replace(info.pod, metadata=deleted)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_ranking_of_a_template_is_that_of_decisions_from_scratch(kind: str) -> None:
    random, ranked = Random(f"{kind} {SEED}"), 0
    for case in named(kind, OF_A_KIND, SEED):
        try:
            story = Story(cluster_of(case), random)
        except MalformedCluster:
            continue
        for replica in story.replicas():
            try:
                story.place(replica)
            except RuleFailed:
                continue
            except AssertionError:
                print(f"RANKING_SEED={SEED} RANKING_CASES={OF_A_KIND}: {case['name']}")
                raise
            if story.state.infos:
                story.disturb()
        ranked += story.ranked
    assert ranked or kind in NEVER_RANKED


NEVER_RANKED = ("device_claims", "devices", "volumes", "volume_limits", "preemption")
