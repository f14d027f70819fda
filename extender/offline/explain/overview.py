"""All pods that wait, one line each, those with the same cause together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from extender.offline.explain.explanation import Explanation
from extender.offline.state import ClusterState
from extender.offline.text import age, aligned, printable

FITS = "a node would take it now"


@dataclass(frozen=True, slots=True)
class PendingPod:
    """One pod that waits.

    Attributes:
        since: when it was made; None: its object does not say.
        cause: what stands in its way on the most nodes, without numbers; `blocker` is the same with them.
        available: on how many of `nodes` it could run now.
        preempts: the node where it would make room for itself; empty: nowhere.
    """

    namespace: str
    name: str
    since: datetime | None
    cause: str
    blocker: str
    available: int
    nodes: int
    preempts: str

    @property
    def verdict(self) -> str:
        """`0/20`, and where preemption helps the node; `-` without nodes."""
        if not self.nodes:
            return "-"
        return f"{self.available}/{self.nodes}" + (f" preempts on {self.preempts}" if self.preempts else "")

    def to_dict(self) -> dict[str, Any]:
        """{"namespace", "name", "since", "cause", "blocker", "available", "nodes", "preempts"}."""
        since = self.since.isoformat() if self.since else None
        return {**asdict(self), "since": since, "preempts": self.preempts or None}


def pending_pods(
    state: ClusterState,
    namespace: str = "",
    progress: Callable[[int, int], None] | None = None,
    most: int | None = None,
) -> list[PendingPod]:
    """The pods that wait, in one namespace or in all; the most frequent cause first, the oldest pod first.

    `progress` is told how many are done, and of how many. No more than `most` are judged.
    """
    waiting = [info.pod for info in state.pending if not namespace or info.pod.namespace == namespace][:most]
    found = []
    for number, pod in enumerate(waiting, 1):
        found.append(_summary(Explanation(state, pod)))
        if progress:
            progress(number, len(waiting))
    sizes: dict[str, int] = {}
    for each in found:
        sizes[each.cause] = sizes.get(each.cause, 0) + 1
    return sorted(found, key=lambda each: (-sizes[each.cause], each.cause, str(each.since), each.namespace, each.name))


def _summary(explanation: Explanation) -> PendingPod:
    pod, made = explanation.pod, explanation.decision
    if explanation.held:
        blocker = explanation.notes[0].partition(":")[0]
        cause = blocker
    elif made.feasible:
        cause = blocker = FITS
    elif explanation.reasons:
        most = explanation.reasons[0]
        cause, blocker = most.reason, f"{most.reason}{f' ({most.detail})' if most.detail else ''}"
    else:
        cause = blocker = explanation.message
    preempts = made.preemption.nominated_node if made.preemption else None
    since = pod.metadata.creation_timestamp
    return PendingPod(
        pod.namespace, pod.name, since, cause, blocker, len(made.feasible), len(made.nodes), preempts or ""
    )


def as_text(pods: Sequence[PendingPod], now: datetime) -> Iterator[str]:
    """A heading for each cause, its pods below."""
    if not pods:
        yield "no pod is pending"
        return
    causes = list(dict.fromkeys(each.cause for each in pods))
    yield f"{len(pods)} pods are pending, of {len(causes)} cause{'s' if len(causes) > 1 else ''}"
    for cause in causes:
        those = [each for each in pods if each.cause == cause]
        yield ""
        yield printable(f"{len(those)} x {cause}")
        lines = [("  NAMESPACE", "NAME", "SINCE", "NODES", "BLOCKER")]
        for each in those:
            since = age(max((now - each.since).total_seconds(), 0)) if each.since else "?"
            lines.append((f"  {each.namespace}", each.name, since, each.verdict, each.blocker))
        yield from aligned(lines)
