"""The kinds of changes to a pod that may let it run, see `step`; two of them have modules of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from extender.model.node import NO_EXECUTE, NO_SCHEDULE, UNSCHEDULABLE_TAINT, Taint, untolerated
from extender.model.pod import Affinity, Container, Pod, Toleration, TopologySpreadConstraint
from extender.offline.explain.details import term_text
from extender.offline.explain.spec_changes import NodeSelection, PodChange, Requests, Step, subsets
from extender.offline.state import ClusterState
from extender.plugins.pod_topology_spread.spread import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY
from extender.table import PodInfo

_MAX_SKEW = 2**31 - 1
# A taint of these tells that the node is not well: a pod that tolerates it would start to fail.
_CONDITION_TAINTS = "node.kubernetes.io/"


class Tolerations:
    """Tolerates the taints of a node."""

    kind = "tolerations"

    def lifted(self, pod: Pod) -> Pod | None:
        return pod.with_spec(tolerations=[*(pod.spec.tolerations or ()), Toleration(operator="Exists")])

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[Step]:
        nodes, tolerations = state.table.nodes, pod.spec.tolerations or ()
        lifted = self.lifted(pod)
        rows = state.fit(lifted).feasible if lifted else np.zeros(0, np.intp)
        sets = {(int(nodes.taint_set[row]), bool(nodes.unschedulable[row])) for row in rows.tolist()}
        missing: dict[tuple[Taint, ...], None] = {}
        for taint_set, cordoned in sorted(sets):
            there = [*nodes.taint_sets[taint_set], *([UNSCHEDULABLE_TAINT] if cordoned else ())]
            lacking = untolerated(there, tolerations, (NO_SCHEDULE, NO_EXECUTE))
            if lacking and not any(taint.key.startswith(_CONDITION_TAINTS) for taint in lacking):
                missing[tuple(lacking)] = None
        for taints in sorted(missing, key=len):
            added = [_toleration(taint) for taint in dict.fromkeys(taints)]
            text = "tolerate " + " and ".join(
                f"{it.key}{f'={it.value}' if it.value else ''}:{it.effect}" for it in dict.fromkeys(taints)
            )
            yield Step(text, len(added), partial(_tolerating, added=added))


class Spread:
    """Raises the maxSkew of topology spread constraints, or makes them preferences."""

    kind = "spread"

    def lifted(self, pod: Pod) -> Pod | None:
        hard = self._hard(pod)
        return self._relaxed(pod, dict.fromkeys(hard)) if hard else None

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[Step]:
        constraints = pod.spec.topology_spread_constraints or []
        for chosen in subsets(self._hard(pod)):
            if not state.feasible(self._relaxed(pod, dict.fromkeys(chosen))):
                continue
            skews: dict[int, int | None] = dict.fromkeys(chosen)
            if len(chosen) == 1:
                skews[chosen[0]] = self._smallest(pod, chosen[0], constraints[chosen[0]].max_skew, state)
            text = " and ".join(_relaxation_text(constraints[at], skew) for at, skew in skews.items())
            yield Step(text, len(chosen), partial(self._relaxed, skews=skews))

    def _smallest(self, pod: Pod, at: int, skew: int, state: ClusterState) -> int | None:
        """The least maxSkew that does; None: none does."""
        low, high = skew, skew + 1
        while not state.feasible(self._relaxed(pod, {at: high})):
            low, high = high, min(high * 2, _MAX_SKEW)
            if low > 2**20:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if state.feasible(self._relaxed(pod, {at: middle})) else (middle, high)
        return high

    def _hard(self, pod: Pod) -> list[int]:
        each = enumerate(pod.spec.topology_spread_constraints or ())
        return [at for at, constraint in each if constraint.when_unsatisfiable == DO_NOT_SCHEDULE]

    def _relaxed(self, pod: Pod, skews: dict[int, int | None]) -> Pod:
        """The pod with other maxSkews; None: the constraint becomes a preference."""
        constraints = list(pod.spec.topology_spread_constraints or ())
        for at, skew in skews.items():
            changed = (
                {"when_unsatisfiable": SCHEDULE_ANYWAY, "min_domains": None} if skew is None else {"max_skew": skew}
            )
            constraints[at] = replace(constraints[at], **changed)
        return pod.with_spec(topology_spread_constraints=constraints)


class PodAffinityChange:
    """Drops required terms of pod affinity and anti-affinity."""

    kind = "pod-affinity"

    def lifted(self, pod: Pod) -> Pod | None:
        terms = self._terms(pod)
        return self._without(pod, terms) if terms else None

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[Step]:  # noqa: ARG002  as PodChange has it
        affinity = pod.spec.affinity or Affinity()
        for chosen in subsets(self._terms(pod)):
            texts = []
            for anti, at in chosen:
                terms = affinity.pod_anti_affinity if anti else affinity.pod_affinity
                assert terms is not None
                assert terms.required is not None
                texts.append(f"podA{'ntiA' if anti else ''}ffinity to {term_text(terms.required[at])}")
            yield Step("drop " + " and ".join(texts), len(chosen), partial(self._without, dropped=chosen))

    def _terms(self, pod: Pod) -> list[tuple[bool, int]]:
        """(whether of anti-affinity, position) of each."""
        affinity = pod.spec.affinity or Affinity()
        both = ((False, affinity.pod_affinity), (True, affinity.pod_anti_affinity))
        return [(anti, at) for anti, terms in both if terms for at in range(len(terms.required or ()))]

    def _without(self, pod: Pod, dropped: Iterable[tuple[bool, int]]) -> Pod:
        affinity, gone = pod.spec.affinity or Affinity(), set(dropped)

        def left(terms: Any, anti: bool) -> Any:
            kept = [term for at, term in enumerate(terms.required or ()) if (anti, at) not in gone] if terms else []
            return replace(terms, required=kept or None) if terms else None

        return pod.with_spec(
            affinity=replace(
                affinity,
                pod_affinity=left(affinity.pod_affinity, False),
                pod_anti_affinity=left(affinity.pod_anti_affinity, True),
            ),
        )


class HostPorts:
    """Gives up ports of the node."""

    kind = "host-ports"

    def lifted(self, pod: Pod) -> Pod | None:
        ports = self._ports(pod)
        return self._without(pod, ports) if ports else None

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[Step]:  # noqa: ARG002  as PodChange has it
        for chosen in subsets(self._ports(pod)):
            text = "give up host port " + " and ".join(f"{port}/{protocol}" for protocol, port in chosen)
            yield Step(text, len(chosen), partial(self._without, dropped=chosen))

    def _ports(self, pod: Pod) -> list[tuple[str, int]]:
        return list(dict.fromkeys((port.protocol, port.port) for port in PodInfo(pod).host_ports))

    def _without(self, pod: Pod, dropped: Iterable[tuple[str, int]]) -> Pod:
        gone = set(dropped)

        def freed(container: Container) -> Container:
            ports = [
                replace(port, host_port=0) if (port.protocol or "TCP", port.host_port) in gone else port
                for port in container.ports or ()
            ]
            return replace(container, ports=ports or None)

        return pod.with_spec(
            host_network=None,
            containers=[freed(each) for each in pod.spec.containers or ()],
            init_containers=[freed(each) for each in pod.spec.init_containers or ()],
        )


class NodeNameChange:
    """Lets a scheduler choose the node."""

    kind = "node-name"

    def lifted(self, pod: Pod) -> Pod | None:
        return pod.placed_on("") if pod.node_name else None

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[Step]:  # noqa: ARG002  as PodChange has it
        yield Step(f"leave out nodeName {pod.node_name}", 1, lambda pod: pod.placed_on(""))


POD_CHANGES: Sequence[PodChange] = (
    Requests(), Tolerations(), NodeSelection(), Spread(), PodAffinityChange(), HostPorts(), NodeNameChange()
)  # fmt: skip


# ---- taints


def _toleration(taint: Taint) -> Toleration:
    operator = "Equal" if taint.value else "Exists"
    return Toleration(key=taint.key, operator=operator, value=taint.value, effect=taint.effect)


def _tolerating(pod: Pod, added: list[Toleration]) -> Pod:
    return pod.with_spec(tolerations=[*(pod.spec.tolerations or ()), *added])


# ---- spreading


def _relaxation_text(constraint: TopologySpreadConstraint, skew: int | None) -> str:
    name = f"the spread constraint over {constraint.topology_key}"
    if skew is None:
        return f"make {name} a preference (ScheduleAnyway)"
    return f"allow maxSkew {skew} instead of {constraint.max_skew} in {name}"
