"""Explains many pods: all that are pending in a cluster, or the cases of a batch.

The pending pods and pod groups have one line each; the pods are grouped by the cause that keeps them pending. A batch
has one case in each line, and gets one answer for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec

from extender.engine import DecisionLimit
from extender.errors import DeadlineExceeded, ExtenderError, RuleUnanswered, TooExpensive, explained
from extender.framework.profile import Profiles
from extender.model.pod import Pod
from extender.model.pod_groups import GroupName
from extender.model.selectors import EVERYTHING, Selector
from extender.offline.answers import CauseCode, Documented
from extender.offline.explain.explanation import Explanation
from extender.offline.explain.group import GroupExplanation
from extender.offline.groups import GroupKind, GroupVerdicts, root_name
from extender.offline.remarks import SchedulerCondition, other_scheduler
from extender.offline.rendering import by_cause
from extender.offline.state import ClusterState
from extender.offline.workloads import workload_name
from extender.policy.loading import read as read_policy
from extender.runtime.clock import SystemClock, known_so_far
from extender.runtime.questions import seconds_left, time_limit
from extender.runtime.text import age_of, aligned, counted, printable, with_suggestion
from extender.snapshots.objects import to_objects

SHARE = 0.2
"""The part of the remaining time that the decision about one pod of a list may take."""
FITS = "fits on a node now"
BESIDE_OTHERS = "no node can take it once the other members of its group are placed"


class PendingPod(Documented, frozen=True):
    """A pending pod, and the reason why it is pending.

    Attributes:
        namespace: the namespace of the pod.
        name: the name of the pod.
        since: when the pod was created (ISO 8601); None if its object does not say.
        code: the kind of cause, which stays the same if the scheduler's words change.
        cause: the most frequent reason that can change, such as missing room; else the most frequent reason of all.
        blocker: the cause and, if known, the numbers behind it.
        available: the number of nodes on which the pod could run now.
        nodes: the number of all nodes.
        preempts: the node on which preemption would make room for the pod; None if preemption does not help.
        condition: what the pod's scheduler wrote, if it contradicts the cause; the blocker has it too.
        workload: what made the pod, such as `Deployment web`; empty if no controller did.
    """

    namespace: str
    name: str
    since: str | None
    code: CauseCode
    cause: str
    blocker: str
    available: int
    nodes: int
    preempts: str | None
    condition: SchedulerCondition | None = None
    workload: str = ""

    @property
    def verdict(self) -> str:
        """The number of available nodes as text: `0/20`, or `0/20 (can preempt on a1)` if preemption helps."""
        if not self.nodes:
            return "-"
        return f"{self.available}/{self.nodes}" + (f" (can preempt on {self.preempts})" if self.preempts else "")


class PendingGroup(Documented, frozen=True):
    """A pod group with members that would not be placed now, and the cause.

    Attributes:
        kind: PodGroup or CompositePodGroup.
        namespace: the namespace of the group.
        name: the name of the group.
        policy: the group's policy, topology and priority as text.
        scheduled, waiting: the number of members with and without a node.
        placed: the number of waiting members that fit together.
        code: the kind of cause.
        blocker: the reason why no further member fits, or why no scheduler tries the group.
    """

    kind: GroupKind
    namespace: str
    name: str
    policy: str
    scheduled: int
    waiting: int
    placed: int
    code: CauseCode
    blocker: str


class Pending(Documented, frozen=True):
    """The pending pods and pod groups of a cluster or a namespace."""

    pods: list[PendingPod] = msgspec.field(name="pending")
    groups: list[PendingGroup]


def pending(
    state: ClusterState,
    namespace: str = "",
    progress: Callable[[int, int], None] | None = None,
    most: int | None = None,
    selector: Selector | None = None,
) -> Pending:
    """Returns the pending pods and the pending root groups; no groups if the nodes could not be read.

    A root group has no parent group. The arguments are those of `pending_pods`.
    """
    verdicts = GroupVerdicts(state)
    pods = pending_pods(state, namespace, progress, most, selector, verdicts)
    return Pending(pods, [] if state.nodes_unread else _pending_groups(state, verdicts, pods))


def _pending_groups(state: ClusterState, groups: GroupVerdicts, pods: Iterable[PendingPod]) -> list[PendingGroup]:
    """Returns the root groups of these pods, except groups whose members could all be placed now."""
    judged = [state.infos[f"{pod.namespace}/{pod.name}"].pod for pod in pods]
    members: dict[GroupName, list[Pod]] = {}
    for pod in judged:
        if pod.group_key is not None and not pod.terminating:
            members.setdefault(root_name(state.objects, pod.group_key), []).append(pod)
    summaries = (_judged_group(state, groups, root, members[root]) for root in sorted(members))
    return [summary for summary in summaries if summary is not None]


def _judged_group(
    state: ClusterState, groups: GroupVerdicts, root: GroupName, members: Sequence[Pod]
) -> PendingGroup | None:
    """Returns the summary of one group; None if its members could all be placed now. See `_judged`."""
    try:
        with _share_of_time(state.engine.limit):
            verdict = groups.of(members[0])
            return None if verdict.fits else _group_summary(GroupExplanation(state, groups, verdict))
    except TooExpensive:
        raise
    except DeadlineExceeded as error:
        namespace, _, name = root.key.partition("/")
        blocker = _late_text(error)
        return PendingGroup(root.kind, namespace, name, "", 0, len(members), 0, CauseCode.NO_VERDICT, blocker)


def _group_summary(explanation: GroupExplanation) -> PendingGroup:
    namespace, _, name = explanation.verdict.key.partition("/")
    return PendingGroup(
        explanation.verdict.kind,
        namespace,
        name,
        explanation.policy,
        explanation.scheduled,
        explanation.waiting,
        len(explanation.placed),
        explanation.causes[0],
        explanation.blocker,
    )


def pending_pods(
    state: ClusterState,
    namespace: str = "",
    progress: Callable[[int, int], None] | None = None,
    most: int | None = None,
    selector: Selector | None = None,
    groups: GroupVerdicts | None = None,
) -> list[PendingPod]:
    """Returns the pending pods of one namespace or of all; the most frequent cause first, then the oldest pod.

    Pods that fit now come last, because their scheduler will place them, if it runs.

    `progress` is called with the number of pods judged so far and the total number. Only the first `most` pods are
    judged; None means all. With a `selector`, only pods whose labels match are returned. `groups` caches the verdicts
    on pod groups.
    """
    groups = groups or GroupVerdicts(state)
    wanted = selector or EVERYTHING
    pending = [
        info.pod
        for info in state.pending
        if (not namespace or info.pod.namespace == namespace) and wanted.matches(info.pod.labels)
    ][:most]
    summaries: list[PendingPod] = []
    with known_so_far(lambda: f"{len(summaries)} of {counted(len(pending), 'pending pod')} are explained"):
        for number, pod in enumerate(pending, 1):
            with _share_of_time(state.engine.limit):
                summaries.append(_judged(state, pod, groups))
            if progress:
                progress(number, len(pending))
    frequency = Counter(each.cause for each in summaries)

    def rank(pod: PendingPod) -> tuple[bool, int, str, str, str, str]:
        fits = pod.code is CauseCode.FITS
        return fits, -frequency[pod.cause], pod.cause, str(pod.since), pod.namespace, pod.name

    return sorted(summaries, key=rank)


@contextmanager
def _share_of_time(limit: DecisionLimit) -> Iterator[None]:
    """Lets a decision take a part of the time that is left for the question, so that one pod does not take it all."""
    before, left = limit.time, seconds_left()
    if left:
        limit.time = before.at_most(SystemClock(), left * SHARE)
    try:
        yield
    finally:
        limit.time = before


def _judged(state: ClusterState, pod: Pod, groups: GroupVerdicts) -> PendingPod:
    """Returns the summary of one pod. If it takes too long, the summary names the object that takes the time."""
    try:
        return _summary(Explanation(state, pod, groups=groups), state)
    except TooExpensive:
        raise
    except DeadlineExceeded as error:
        cause = _late_text(error)
        workload = workload_name(pod, state)
        return PendingPod(
            pod.namespace, pod.name, _created(pod), CauseCode.NO_VERDICT, cause, cause, 0, 0, None, workload=workload
        )


def _created(pod: Pod) -> str | None:
    created = pod.metadata.creation_timestamp
    return created.isoformat() if created else None


def _late_text(error: DeadlineExceeded) -> str:
    if isinstance(error, RuleUnanswered):  # it says already what has not answered
        return str(error)
    return explained("no verdict within its share of the time", error)


def _summary(explanation: Explanation, state: ClusterState) -> PendingPod:
    pod, decision = explanation.pod, explanation.decision
    if explanation.is_excluded:
        code = CauseCode.EXCLUDED
        cause = blocker = explanation.notes[0].partition(":")[0]
    elif (group := explanation.group) is not None and pod.uid in group.failures:
        is_group_pending = group.decision is None or not group.decision.is_success
        code = CauseCode.POD_GROUP
        cause = f"{group.kind} {group.key} is pending" if is_group_pending else BESIDE_OTHERS
        blocker = group.text if is_group_pending else explanation.message
    elif decision.feasible:
        code, cause = CauseCode.FITS, FITS
        blocker = f"nothing: does a scheduler named {pod.spec.scheduler_name or state.profiles.names[0]} run?"
    elif explanation.reasons and decision.error is None:
        # A final reason, such as another node pool, is often what the pod asks for. What keeps it from the other nodes
        # can change.
        first = next((reason for reason in explanation.reasons if not reason.final), explanation.reasons[0])
        code, cause = first.code, first.reason
        blocker = f"{first.reason} ({first.detail})" if first.detail else first.reason
    else:
        code = CauseCode.NO_VERDICT
        cause = blocker = explanation.message
    if code is not CauseCode.FITS and (scheduler := other_scheduler(pod, state)):
        blocker = f"{blocker}; its schedulerName is {scheduler}"
    if (condition := explanation.condition) is not None:
        blocker = str(condition) if code is CauseCode.FITS else f"{blocker}; {condition}"
    return PendingPod(
        pod.namespace,
        pod.name,
        _created(pod),
        code,
        cause,
        blocker,
        len(decision.feasible),
        len(decision.nodes),
        decision.preemption.nominated_node if decision.preemption else None,
        explanation.condition,
        workload_name(pod, state),
    )


def _row(group: PendingGroup) -> tuple[str, ...]:
    name = f"  {group.kind} {group.namespace}/{group.name}"
    return name, group.policy, str(group.scheduled), str(group.waiting), str(group.placed), group.blocker


def none_pending(state: ClusterState, namespace: str, *, is_selected: bool) -> str:
    """Returns what to say if no pod is pending; a namespace without pods may be misspelt.

    Args:
        namespace: the namespace whose pods were to be listed; empty for all.
        is_selected: True if only pods with certain labels were to be listed.
    """
    if namespace and namespace not in (inhabited := state.inhabited()):
        return with_suggestion(f"namespace {namespace} has no pods at all", namespace, inhabited)
    labels = " with these labels" if is_selected else ""
    return f"no pods{labels} are pending" + (f" in namespace {namespace}" if namespace else "")


def _causes(pods: Sequence[PendingPod]) -> str:
    """Returns the end of the heading: how many causes there are, and how many pods are not blocked at all."""
    blocked = [pod for pod in pods if pod.code is not CauseCode.FITS]
    causes = counted(len({pod.cause for pod in blocked}), "cause")
    if not blocked:
        return ", none blocked"
    if len(blocked) == len(pods):
        return f", {causes}"
    return f": {len(blocked)} blocked ({causes}), {len(pods) - len(blocked)} would fit now"


def as_text(
    pods: Sequence[PendingPod],
    groups: Sequence[PendingGroup],
    now: datetime,
    *,
    if_none: str = "no pods are pending",
) -> Iterator[str]:
    """Yields lines of text: a table of the groups, then for each cause a heading and a table of its pods.

    `if_none`: the line to print if there are no pods.
    """
    if not pods:
        yield printable(if_none)
        return
    yield f"{counted(len(pods), 'pending pod')}{_causes(pods)}"
    if groups:
        yield ""
        yield f"{counted(len(groups), 'pending pod group')}:"
        yield from aligned(
            [("  GROUP", "POLICY", "SCHEDULED", "WAITING", "THAT FIT", "BLOCKED BY"), *map(_row, groups)]
        )
    for cause, count, rows in by_cause([pod.to_dict() for pod in pods]):
        yield ""
        yield printable(f"{cause}: {counted(count, 'pod')}")
        lines = [("  NAMESPACE", "NAME", "AGE", "NODES", "BLOCKED BY")]
        for (position, _), *others in rows:
            pod = pods[position]
            name = f"{pod.name} and {len(others)} more of {pod.workload}" if others else pod.name
            created = age_of(datetime.fromisoformat(pod.since), now) if pod.since else "<unknown>"
            written = pod.condition.since if pod.condition else None
            blocker = f"{pod.blocker} ({age_of(datetime.fromisoformat(written), now)} ago)" if written else pod.blocker
            lines.append((f"  {pod.namespace}", name, created, pod.verdict, blocker))
        yield from aligned(lines)


Answer = dict[str, Any]


class Items(msgspec.Struct, rename="camel"):
    """A Kubernetes v1 List, which holds objects of any kinds; a snapshot also has the version of Kubernetes."""

    items: list[dict[str, Any]] | None = None
    kubernetes_version: str = ""


class Case(msgspec.Struct):
    """A cluster and a pod to place in it. `config` is a policy that applies to this case only."""

    cluster: Items
    pod: dict[str, Any]
    config: dict[str, Any] | None = None


def answers(
    lines: Iterable[bytes], profiles: Profiles | None = None, *, changes: bool = True, seconds: float = 0
) -> Iterator[Answer]:
    """Yields the answer to each line, which holds one case as JSON; skips blank lines.

    A line is {"name", "cluster": v1 List, "pod", "config"}. The policy in "config" applies to this case; without one,
    `profiles` apply. An answer is the case's "name" and an explanation (`Explanation.to_dict`), with the "error" if an
    error ends the attempt; or only {"name", "error"} if the line is not a valid case, or takes more than `seconds`
    (0: no limit).
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _answer(line, number, profiles, changes, seconds)


def _answer(line: bytes, number: int, profiles: Profiles | None, changes: bool, seconds: float) -> Answer:
    name: object = f"line {number}"
    try:
        decoded = msgspec.json.decode(line)
        name = decoded.get("name", name) if isinstance(decoded, dict) else name
        case = msgspec.convert(decoded, Case)
        if case.config:
            own = read_policy(case.config).scheduler_profiles()
            profiles = own.following(profiles.features.version) if profiles else own
        with time_limit(seconds):
            objects, version = to_objects(case.cluster.items or ()), case.cluster.kubernetes_version
            state = ClusterState(objects, profiles, kubernetes_version=version)
            explanation = Explanation(state, state.stored(case.pod))
            failure = explanation.decision.error
            ended = {} if failure is None else {"error": ", ".join(failure.reasons)}
            return {"name": name, **explanation.to_dict(changes=changes), **ended}
    except (msgspec.MsgspecError, ExtenderError, RecursionError, UnicodeDecodeError) as error:
        return {"name": name, "error": f"line {number}: {error}"}
