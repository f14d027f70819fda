"""DeviceScoring: prefers nodes by policies for devices, such as FGD. kube-scheduler has no such plugin.

In `extender schedule` and the offline commands, the policies also choose the devices on the node. kube-scheduler
chooses the devices alone, so that the webhook scores each node by the devices that kube-scheduler would take there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from extender.devices.allocations import FITS, FindBest
from extender.devices.device_columns import EVERY_DRIVER, DeviceColumns, DeviceResource
from extender.devices.device_nodes import WHOLE, Ints
from extender.devices.device_scores import BestDevices, PodKinds, Step, score_rows, steps_of
from extender.devices.pod_claims import NodeClaims, NodeGroup, PodDeviceClaims, pod_device_claims
from extender.devices.policies import POLICIES, USERS_OF_TYPICAL_PODS, DevicePolicy, Weighted
from extender.devices.typical_pods import Kind, TypicalPods
from extender.errors import MalformedQuantity
from extender.framework.plugin import Arguments, Plugin
from extender.framework.policy_fields import Positive, Strict
from extender.framework.profile import Profile
from extender.framework.rules import RowScorer, Scorer, Scores
from extender.model.quantity import milli_from_nano, nano
from extender.plugins.users.priority import CustomDevicePriority
from extender.table import PodInfo, Table
from extender.table.filing import cached
from extender.table.labels import Rows

NAME = "DeviceScoring"
_MOST_STATES = 16
POLICY_NAMES = ("FirstFit", "BestFit", "DotProd", "GpuClustering", "GpuPacking", "FGD", "CpuBalance", "PWR")
"""The policies of this project; a configuration may name users' policies, too."""


def _quantity(value: str) -> str:
    try:
        if nano(value) < 0:
            raise ValueError("expected a quantity of 0 or more")
    except MalformedQuantity:
        raise ValueError("expected a quantity, like 4 or 500m") from None
    return value


class DevicePolicySpec(Strict):
    """A policy, and what its scores count for."""

    name: str
    """The name of the policy, or module:function of a user's."""
    weight: Annotated[int, Field(ge=1, le=100)] = 1
    """The weight of its scores in the sum."""


class DeviceResourceSpec(Strict):
    """The devices of a driver that the policies see."""

    driver: Annotated[str, Field(min_length=1)]
    """The driver of the devices."""
    capacity: str = ""
    """The capacity that measures shares of a device; by default the one of which a share takes most."""
    model: str = ""
    """The attribute that names the model; by default `productName` or `model`."""


class TypicalPodSpec(Strict):
    """A kind of pods that the cluster should keep devices for."""

    cpu: Annotated[str, AfterValidator(_quantity)] = "0"
    """The CPU that such a pod requests."""
    devices: Annotated[int, Field(ge=0, le=128)] = 1
    """The number of its devices; 0 for pods without devices."""
    share: Annotated[int, Field(ge=1, le=WHOLE)] = WHOLE
    """The thousandths of each device that it uses; below 1000 only for one device."""
    models: tuple[str, ...] = ()
    """The models of devices that it can use; empty for every model."""
    weight: Positive = 1
    """How frequent such pods are, compared with the others."""

    @model_validator(mode="after")
    def _shares_one_device(self) -> Self:
        if self.share < WHOLE and self.devices != 1:
            raise ValueError(f"a share below {WHOLE} needs devices: 1")
        return self

    @property
    def kind(self) -> Kind:
        return milli_from_nano(nano(self.cpu)), self.share if self.devices else 0, self.devices, frozenset(self.models)


class DeviceScoringArgs(Arguments):
    kind: Literal["DeviceScoringArgs"] = "DeviceScoringArgs"
    policies: tuple[DevicePolicySpec, ...] = ()
    """The policies, whose weighted mean is the score of a node; by default FGD."""
    resources: tuple[DeviceResourceSpec, ...] = ()
    """The devices that the policies see; by default those of every driver."""
    typical_pods: tuple[TypicalPodSpec, ...] = ()
    """The pods that FGD and CpuBalance keep devices for; by default the most frequent kinds of pods on the nodes."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        for field, names in (
            ("policies", [policy.name for policy in self.policies]),
            ("resources", [resource.driver for resource in self.resources]),
        ):
            if len(set(names)) < len(names):
                raise ValueError(f"{field}: expected every name once")
        return self


@dataclass(frozen=True, slots=True)
class DeviceScoring:
    """Scores nodes, and devices unless `takes_first_fit`.

    Attributes:
        policies: the names of the policies with their weights.
        users_rules: the policies among them that are users' functions.
        resources: the devices that the policies see.
        typical_pods: the typical pods with their shares; None to learn them.
        takes_first_fit: True if kube-scheduler chooses the devices.
    """

    policies: tuple[tuple[str, int], ...]
    resources: tuple[DeviceResource, ...] = EVERY_DRIVER
    typical_pods: tuple[tuple[Kind, float], ...] | None = None
    takes_first_fit: bool = False
    users_rules: tuple[CustomDevicePriority, ...] = ()
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        state = table.reader(_States).of(self)
        if len(state.columns.classes) == 1:  # no node has a device
            return None
        state.begin(pod)
        claims = pod_device_claims(pod, table)
        if isinstance(claims, PodDeviceClaims):
            score = partial(self._score_claims, state, claims, table)
        else:
            score = partial(self._score, state, [])
        scorer = RowScorer(partial(score, resources=_resources(pod)))
        scorer.normalises = True  # a score may depend on the other rows
        return scorer

    def _score_claims(
        self, state: _State, claims: PodDeviceClaims, table: Table, rows: Rows, resources: tuple[int, int]
    ) -> Scores:
        groups = NodeClaims(claims, table, rows).groups
        scores = np.zeros(len(rows), np.int64)
        rest = np.ones(len(rows), np.bool_)
        for group in groups:
            steps = steps_of(state.columns, group.allocations.claims)
            scores[group.mask] = self._score(state, steps, rows[group.mask], resources, group)
            rest &= ~group.mask
        if rest.any():
            scores[rest] = self._score(state, [], rows[rest], resources)
        return scores

    def _score(
        self,
        state: _State,
        steps: Sequence[Step],
        rows: Rows,
        resources: tuple[int, int],
        group: NodeGroup | None = None,
    ) -> Scores:
        if not len(rows):
            return np.zeros(0, np.int64)
        taken = None if group is None or not self.takes_first_fit else _first_fit(state.columns, group, rows)
        return score_rows(state.columns, rows, steps, resources, state.parts(), taken)

    def find_best(self, pod: PodInfo, table: Table, row: int) -> FindBest | None:
        """Returns the search for the pod's devices on the node in this row; None if kube-scheduler's are taken."""
        if self.takes_first_fit:
            return None
        state = table.reader(_States).of(self)
        if pod is not state.pod:
            state.begin(pod)
        parts, resources = state.parts(), _resources(pod)
        return lambda claims, views, allocated: BestDevices(
            claims, views, allocated, state.columns, row, resources, parts
        ).find()


def _resources(pod: PodInfo) -> tuple[int, int]:
    return pod.requests.get("cpu", 0), pod.requests.get("memory", 0)


def _first_fit(columns: DeviceColumns, group: NodeGroup, rows: Rows) -> Callable[[int], Ints]:
    """Returns, for each step, the slot of the device that kube-scheduler would take for it: int64[n]."""
    fits = group.allocations.outcomes(rows, group.limit) == FITS
    taken = [
        [result.device.id for results in group.allocations.results(row) for result in results] if fit else []
        for row, fit in zip(rows.tolist(), fits.tolist(), strict=True)
    ]

    def slots(step: int) -> Ints:
        return np.array(
            [
                columns.slot_of(row, devices[step]) if step < len(devices) else 0
                for row, devices in zip(rows.tolist(), taken, strict=True)
            ],
            np.int64,
        )

    return slots


class _State:
    """The columns and policies of one DeviceScoring for a table.

    Attributes:
        pod: the pod that `begin` was called for last.
    """

    def __init__(self, scoring: DeviceScoring, table: Table) -> None:
        self.columns = DeviceColumns(table, scoring.resources)
        self.pod: PodInfo | None = None
        self._table = table
        self._given = scoring.policies
        self._users_rules = scoring.users_rules
        self._users: dict[str, DevicePolicy] = {}
        self._kinds = PodKinds(table, self.columns) if scoring.typical_pods is None else None
        self._typical = TypicalPods(dict(scoring.typical_pods or ()))
        self._parts: list[Weighted] = []

    def begin(self, pod: PodInfo) -> None:
        """Lets users' policies that failed for another pod run again."""
        self.pod = pod
        if self._users_rules:
            self._users = {rule.name: rule.on(self._table) for rule in self._users_rules}
            self._parts = []

    def parts(self) -> Sequence[Weighted]:
        """Returns the policies, with the typical pods of now."""
        typical = self._typical
        if self._kinds is not None and any(name in USERS_OF_TYPICAL_PODS for name, _ in self._given):
            typical = self._kinds.typical()
        if not self._parts or typical is not self._typical:
            self._typical = typical
            self._parts = [
                Weighted(self._users.get(name) or POLICIES[name](typical, 0), weight) for name, weight in self._given
            ]
        return self._parts


class _States:
    """The states of all DeviceScoring rules for one table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._states: OrderedDict[DeviceScoring, _State] = OrderedDict()

    def of(self, scoring: DeviceScoring) -> _State:
        """Returns the state, brought up to date."""
        key = replace(scoring, takes_first_fit=False)
        state = cached(self._states, key, lambda: _State(key, self._table), _MOST_STATES)
        state.columns.refresh()
        return state


def scoring_with(rule: CustomDevicePriority) -> DeviceScoring:
    """Returns a DeviceScoring with this policy only, to try it."""
    return DeviceScoring(((rule.name, 1),), users_rules=(rule,))


def device_scoring_of(profile: Profile) -> DeviceScoring | None:
    """Returns the profile's DeviceScoring; None if it has none."""
    for weighted in profile.priorities:
        if isinstance(weighted.priority, DeviceScoring):
            return weighted.priority
    return None


def scored_by_first_fit(profile: Profile) -> Profile:
    """Returns the profile for a webhook, whose caller chooses the devices."""
    if device_scoring_of(profile) is None:
        return profile
    priorities = [
        replace(weighted, priority=replace(weighted.priority, takes_first_fit=True))
        if isinstance(weighted.priority, DeviceScoring)
        else weighted
        for weighted in profile.priorities
    ]
    return replace(profile, priorities=priorities)


def _build(args: DeviceScoringArgs) -> DeviceScoring:
    total = sum(pod.weight for pod in args.typical_pods)
    return DeviceScoring(
        tuple((policy.name, policy.weight) for policy in args.policies) or (("FGD", 1),),
        tuple(DeviceResource(each.driver, each.capacity, each.model) for each in args.resources) or EVERY_DRIVER,
        tuple((pod.kind, pod.weight / total) for pod in args.typical_pods) or None,
    )


PLUGIN = Plugin(NAME, DeviceScoringArgs, priority=_build, default=False)
