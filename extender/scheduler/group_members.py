"""Lets `groups.decide_group` decide about the members of a group with a scheduling cycle."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from extender.devices.extended_resources import CLAIM_NAME
from extender.framework.profile import Profile
from extender.groups import DecideOne, MemberDecision
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.scheduler.binding.device_reservations import pending_claim
from extender.scheduler.binding.volume_reservations import bound, selected
from extender.scheduler.scheduling_cycle import Chosen, SchedulingCycle
from extender.table import PodInfo, Table
from extender.table.labels import Rows


def decides_members(cycle: SchedulingCycle, table: Table) -> DecideOne:
    """Returns a function that decides about one member with `cycle` on `table`.

    The `detail` of each MemberDecision is the answer of the cycle: a Chosen or a Failure.
    """

    def decide_one(info: PodInfo, rows: Rows | None) -> MemberDecision:
        decided = cycle.decide_member(info, table, rows)
        if isinstance(decided, Chosen):
            return MemberDecision(decided.node_name, reserved=list(reserved(info.pod, decided)), detail=decided)
        rules = decided.rejection.rules
        return MemberDecision(None, decided.message, is_error=not rules, detail=decided, rules=rules)

    return decide_one


class MemberJudge:
    """Chooses nodes for members of pod groups, for callers without a scheduling loop.

    Each call may use another profile. One cycle is kept for each profile, because a cycle reuses its rankings of nodes.
    Only one thread at a time may use the judge.

    Args:
        random: chooses between nodes with the same score.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._cycles: dict[str, SchedulingCycle] = {}

    def __call__(self, profile: Profile, table: Table) -> DecideOne:
        cycle = self._cycles.get(profile.name)
        if cycle is None or cycle.profile is not profile:
            cycle = self._cycles[profile.name] = SchedulingCycle(profile, self._random)
        return decides_members(cycle, table)


def reserved(pod: Pod, chosen: Chosen) -> Iterator[Object]:
    """Yields the volumes and claims that change when the pod is placed, as they are afterwards.

    If a volume is to be bound to a claim, only the volume is yielded, because a controller changes the claim later.
    """
    for claim, volume in chosen.volumes.bind:
        yield bound(volume, claim)
    for claim in chosen.volumes.provision:
        yield selected(claim, chosen.node_name)
    for device_claim, allocation in chosen.devices.allocate:
        if device_claim.name == CLAIM_NAME:
            yield pending_claim(device_claim, allocation)
            continue
        consumer = chosen.devices.consumer_of(device_claim, pod)
        status = replace(device_claim.status, allocation=allocation, reserved_for=[consumer])
        yield replace(device_claim, status=status)
    for device_claim in chosen.devices.reserve:
        consumer = chosen.devices.consumer_of(device_claim, pod)
        if not device_claim.is_reserved_for(consumer.uid):
            users = [*(device_claim.status.reserved_for or ()), consumer]
            yield replace(device_claim, status=replace(device_claim.status, reserved_for=users))
