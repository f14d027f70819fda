"""Reads a classic Policy as one profile. Source: upstream's Policy API until v1.22."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from extender.framework.policy_fields import points
from extender.framework.profile import Profile, WeightedPriority
from extender.framework.rules import Predicate, Priority
from extender.plugins.classic.node_conditions import NodeLabelFilter, NodeLabelScore
from extender.plugins.classic.service_affinity import ServiceAffinity, ServiceAntiAffinity
from extender.plugins.node_resources import weights
from extender.plugins.node_resources_scores import NodeResourcesFitScore, RequestedToCapacityRatio
from extender.plugins.registry import DEFAULT_SCHEDULER
from extender.plugins.scheduling_gates import SchedulingGates
from extender.policy.classic_names import (
    DEFAULT_PREDICATES,
    DEFAULT_PRIORITIES,
    LABEL_PRESENCE,
    MANDATORY,
    PREDICATES,
    SERVICE_AFFINITY,
    PolicySpec,
    PredicateArgument,
    PredicateSpec,
    PriorityArgument,
    PrioritySpec,
    priorities,
)
from extender.policy.extenders import LegacyExtenderSpec, in_any_case, read_extenders
from extender.policy.faults import Faults
from extender.policy.library import Library
from extender.policy.policy import Policy

_ORDER = {name: position for position, name in enumerate(PREDICATES)}
_AFTER_ALL = len(_ORDER)
_MAX_WEIGHT = 2**31 - 1


def read_policy(document: object, library: Library, faults: Faults) -> Policy | None:
    """Returns the policy with its one profile, and adds its faults to `faults`."""
    if isinstance(document, Mapping) and "extenders" in document:
        document = {**document, "extenders": in_any_case(document["extenders"], LegacyExtenderSpec)}
    spec = faults.read(PolicySpec, document)
    if spec is None:
        return None
    predicates = _PredicateReader(library, faults).read(spec.predicates)
    # kube-scheduler treats a missing weight as 0, and then uses 1 instead of 0.
    by_name = priorities(spec.hard_pod_affinity_symmetric_weight or 1)
    weighted = _PriorityReader(by_name, library, faults).read(spec.priorities)
    return Policy(
        (
            Profile(
                DEFAULT_SCHEDULER,
                predicates,
                weighted,
                check_all_predicates=spec.always_check_all_predicates,
                pre_enqueue=(SchedulingGates(),),
            ),
        ),
        extenders=read_extenders(spec.extenders, faults),
    )


class _PredicateReader:
    """Reads the predicates of a policy, without duplicates, in the order in which they run."""

    def __init__(self, library: Library, faults: Faults) -> None:
        self._library = library
        self._faults = faults

    def read(self, specs: tuple[PredicateSpec, ...] | None) -> list[Predicate]:
        if specs is None:
            specs = tuple(PredicateSpec(name=name) for name in DEFAULT_PREDICATES)
        ranked = [(_ORDER[name], PREDICATES[name]) for name in MANDATORY]
        for index, spec in enumerate(specs):
            ranked += self._ranked(spec, f"predicates[{index}]")
        in_order = [rule for _, rules in sorted(ranked, key=lambda pair: pair[0]) for rule in rules]
        return [rule for index, rule in enumerate(in_order) if rule not in in_order[:index]]

    def _ranked(self, spec: PredicateSpec, path: str) -> Iterator[tuple[int, tuple[Predicate, ...]]]:
        """Yields (rank, plugins) for one entry of `predicates`; predicates run in the order of their ranks."""
        if PREDICATES.get(spec.name):
            if spec.argument:
                self._faults.add(f"{path}.argument", f"{spec.name} takes no argument")
            yield _ORDER[spec.name], PREDICATES[spec.name]
        elif self._library.has_rule(spec.name):
            yield _AFTER_ALL, tuple(_users_rule(spec, path, "predicate", PREDICATES, self._library, self._faults))
        elif spec.argument or spec.name in PREDICATES:
            yield from self._argued(spec, path)
        else:
            self._library.find_rule(spec.name, f"{path}.name", self._faults, PREDICATES)

    def _argued(self, spec: PredicateSpec, path: str) -> Iterator[tuple[int, tuple[Predicate, ...]]]:
        argument = self._faults.read(PredicateArgument, spec.argument, f"{path}.argument")
        if argument is None:
            return
        if presence := argument.labels_presence:
            yield _ORDER[LABEL_PRESENCE], (NodeLabelFilter(presence.labels, presence.presence, spec.name),)
        if affinity := argument.service_affinity:
            yield _ORDER[SERVICE_AFFINITY], (ServiceAffinity(affinity.labels, spec.name),)


class _PriorityReader:
    """Reads the priorities of a policy, in the order of the policy."""

    def __init__(self, by_name: Mapping[str, Priority], library: Library, faults: Faults) -> None:
        self._by_name = by_name
        self._library = library
        self._faults = faults

    def read(self, specs: tuple[PrioritySpec, ...] | None) -> list[WeightedPriority]:
        if specs is None:
            specs = tuple(PrioritySpec(name=name, weight=weight) for name, weight in DEFAULT_PRIORITIES.items())
        weighted: list[WeightedPriority] = []
        for index, spec in enumerate(specs):
            path = f"priorities[{index}]"
            if not 0 < spec.weight <= _MAX_WEIGHT:
                what = f"expected a positive weight of at most {_MAX_WEIGHT}, got {spec.weight}"
                self._faults.add(f"{path}.weight", what)
            if any(spec.name == other.name for other in specs[:index]):
                self._faults.add(f"{path}.name", f"{spec.name} is given twice")
            weighted += [WeightedPriority(priority, spec.weight) for priority in self._priorities(spec, path)]
        return weighted

    def _priorities(self, spec: PrioritySpec, path: str) -> Iterator[Priority]:
        if spec.name in self._by_name:
            if spec.argument:
                self._faults.add(f"{path}.argument", f"{spec.name} takes no argument")
            yield self._by_name[spec.name]
        elif self._library.has_rule(spec.name):
            yield from _users_rule(spec, path, "priority", self._by_name, self._library, self._faults)
        elif spec.argument:
            yield from self._argued(spec, path)
        else:
            self._library.find_rule(spec.name, f"{path}.name", self._faults, self._by_name)

    def _argued(self, spec: PrioritySpec, path: str) -> Iterator[Priority]:
        argument = self._faults.read(PriorityArgument, spec.argument, f"{path}.argument")
        if argument is None:
            return
        if anti_affinity := argument.service_anti_affinity:
            yield ServiceAntiAffinity(anti_affinity.label, spec.name)
        if preference := argument.label_preference:
            yield NodeLabelScore(preference.label, preference.presence, spec.name)
        if ratio := argument.requested_to_capacity_ratio_arguments:
            strategy = RequestedToCapacityRatio(points(ratio.shape))
            yield NodeResourcesFitScore(strategy, weights(ratio.resources), spec.name)


def _users_rule(
    spec: PredicateSpec | PrioritySpec,
    path: str,
    kind: Literal["predicate", "priority"],
    known: Iterable[str],
    library: Library,
    faults: Faults,
) -> Iterator[Any]:
    """Yields the user's rule that `spec` names, or else adds a fault that may suggest one of the `known` names."""
    plugin = library.find_rule(spec.name, f"{path}.name", faults, known)
    if plugin is None:
        return
    factory = getattr(plugin, kind)
    if factory is None:
        faults.add(f"{path}.name", f"{spec.name} is not a {kind}")
        return
    arguments = faults.read(plugin.arguments, spec.argument, f"{path}.argument")
    if arguments is not None:
        yield factory(arguments)
