"""What must hold of every answer about a cluster. Each check yields one line for each thing that does not."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec

from extender.engine import Decision
from extender.errors import ExtenderError, MalformedCluster
from extender.model.node import NO_SCHEDULE, UNSCHEDULABLE_TAINT, untolerated
from extender.model.pod import Pod
from extender.model.pod_groups import PodGroup
from extender.offline.answers import CauseCode
from extender.offline.cluster import Cluster
from extender.offline.explain import overview, terminal
from extender.offline.explain.suggestion import SuggestedChange
from extender.offline.replicas import counts_terminating, is_pinned
from extender.offline.what_if import result as what_if
from extender.offline.what_if.hypothetical import answer_simulation
from extender.offline.what_if.scenario import Scenario
from tests.answers.case import Case, Check, Faults
from tests.answers.smaller import check_smaller
from tests.builders import Object

MOST_PODS = 24

_NOW = datetime(2026, 11, 22, tzinfo=UTC)

# ---- explain and simulate


def check_simulation(case: Case) -> Faults:
    """A simulation of the pod alone places it where explain says, or gives the same reason."""
    others = [item for item in case.items if not _is_pending(item) or item is case.manifest or _is_nominated(item)]
    # In a simulation terminating pods end at the start; explain shows them as they are.
    others = [item for item in others if "deletionTimestamp" not in item["metadata"]]
    cluster = case.of(item if item is case.manifest else _gated(item) for item in others)
    explanation = cluster.explain(case.key)
    result = cluster.simulate()
    placements = {each.pod: each.node for each in result.placements}
    if _creates_claims(case.manifest) or not _is_pending(case.manifest) or explanation.group is not None:
        return
    if result.evictions:
        if not explanation.decision.preemption or not explanation.decision.preemption.candidates:
            yield f"simulate evicts {[each.pod for each in result.evictions]}, explain {explanation.message!r}"
    elif case.key in placements:
        if placements[case.key] not in explanation.decision.best:
            yield f"simulate places it on {placements[case.key]}, explain on {explanation.decision.best}"
    elif result.remaining[case.key].partition(" (no ")[0] != explanation.message:
        yield f"simulate says {result.remaining[case.key]!r}, explain {explanation.message!r}"


def _creates_claims(pod: Object) -> bool:
    """Returns True if controllers would create claims for the pod, which a simulation does and explain does not."""
    spec = pod["spec"]
    templates = [each for each in spec.get("resourceClaims", ()) if "resourceClaimTemplateName" in each]
    return bool(templates) or any("ephemeral" in volume for volume in spec.get("volumes", ()))


def _is_pending(item: Object) -> bool:
    return item["kind"] == "Pod" and not item["spec"].get("nodeName")


def _is_nominated(item: Object) -> bool:
    return bool(item.get("status", {}).get("nominatedNodeName"))


def _gated(item: Object) -> Object:
    """Returns a pending pod as one that no scheduler tries, so that it keeps its nomination."""
    if not _is_pending(item):
        return item
    return {**item, "spec": {**item["spec"], "schedulingGates": [{"name": "example.com/never"}]}}


# ---- suggestions


def check_suggestions(case: Case) -> Faults:
    """Each suggested change, carried out on the objects, lets the pod run where it says; the spec stays as it is."""
    for change in case.explanation.changes:
        try:
            after = _carried_out(case, change)
            decision = after.decide(after.pod(case.key))
        except ExtenderError as error:
            yield f"{change.text}: {error}"
            continue
        if sorted(decision.feasible) != sorted(change.nodes):
            yield f"{change.text}: says {sorted(change.nodes)}, and then fits on {decision.feasible}"
        if change.pod is not None:
            yield from (f"{change.text}: {fault}" for fault in _invalid(case, change.pod))


def _carried_out(case: Case, change: SuggestedChange) -> Cluster:
    document = json.loads(json.dumps(change.to_dict()))
    set_objects = {_identity(obj): obj for obj in document.get("objects", ())}
    removed = set(document.get("removed", ()))
    items = []
    for item in case.items:
        obj = set_objects.pop(_identity(item), item)
        if item is case.manifest and "spec" in document:
            obj = {**item, "spec": document["spec"]}
        if item["kind"] != "Pod" or "/".join(_identity(item)[1:]) not in removed:
            items.append(obj)
    return case.of([*items, *set_objects.values()])


def _identity(item: Object) -> tuple[str, str, str]:
    metadata = item["metadata"]
    namespaced = item["kind"] in ("Pod", "PersistentVolumeClaim", "ResourceClaim", "PodDisruptionBudget")
    return item["kind"], metadata.get("namespace") or ("default" if namespaced else ""), metadata["name"]


def _invalid(case: Case, after: Pod) -> Faults:
    """Yields why the API server would refuse the changed pod, if it would not refuse the pod before."""
    if _refusal(case, case.explanation.pod) is None and (refusal := _refusal(case, after)):
        yield refusal


def _refusal(case: Case, pod: Pod) -> str | None:
    spec = json.loads(msgspec.json.encode(pod.spec))
    metadata = {**case.manifest["metadata"], "name": "admitted"}
    try:
        case.cluster.decide({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    except MalformedCluster as error:
        return str(error)
    return None


# ---- capacity, compare, redaction


def check_capacity(case: Case) -> Faults:
    """If capacity is N, a simulation places N more pods and not N + 1."""
    cluster = case.of(item for item in case.items if not _is_pending(item))
    template = {**case.manifest, "metadata": {**case.manifest["metadata"], "name": "more"}}
    template["status"] = {}
    ignored = ("schedulingGates", "nodeName", "schedulingGroup")
    spec = {key: value for key, value in template["spec"].items() if key not in ignored}
    template["spec"] = {**spec, "preemptionPolicy": "Never"}
    try:
        capacity = cluster.capacity([template], most=MOST_PODS)
    except MalformedCluster:  # some cases have pods that an API server would refuse
        return
    found = capacity.total
    for counts in (capacity.by_zone, *capacity.by_node.values()):
        if sum(counts.values()) != found:
            yield f"capacity is {found}, but its parts are {counts}"
    if case.cluster.nodes and not capacity.limited and not all(capacity.exhausted.values()):
        yield f"capacity is {found}, and no reason says why there are no more"
    for replicas in (found, found + 1) if found < MOST_PODS else (found,):
        if replicas:
            result = cluster.simulate(Scenario(create=[(template, replicas)]))
            placed = sum(each.pod.partition("/")[2].startswith("more") for each in result.placements)
            if placed != found:
                yield f"capacity is {found}, but of {replicas} pods a simulation places {placed}"


def check_comparison(case: Case) -> Faults:
    """Both sides of a comparison account for every pod, and the moved pods are those that differ."""
    comparison = case.cluster.compare(None)
    state = case.cluster._state
    pending = {pod.key for pod in case.cluster.pending}
    # The controllers of some terminating pods create them again once they are gone.
    pods = [info.pod for name in state.node_names() for info in state.pods_on(name)]
    pending |= {pod.key for pod in pods if pod.terminating and counts_terminating(pod, state)}
    sides = []
    for side in (comparison.first, comparison.second):
        evicted = {each.pod for each in side.evictions if each.comes_back}
        nodes = {each.pod: each.node for each in side.placements}
        sides.append({**dict.fromkeys(side.remaining, ""), **nodes})
        if nodes.keys() & side.remaining.keys():
            yield f"both placed and pending: {nodes.keys() & side.remaining.keys()}"
        if nodes.keys() | side.remaining.keys() != pending | evicted:
            yield f"of {sorted(pending | evicted)} there are {sorted(nodes)} placed and {sorted(side.remaining)} not"
    for moved in comparison.moved:
        if moved.first == moved.second:
            yield f"{moved.pod} does not move"
    differing = {pod for pod in sides[0].keys() & sides[1].keys() if sides[0][pod] != sides[1][pod]}
    if missed := differing - {moved.pod for moved in comparison.moved}:
        yield f"moved, but not listed: {missed}"


def check_redaction(case: Case) -> Faults:
    """A snapshot is decided like the original; so is a redacted one, unless names decide between victims."""
    yield from _snapshot_differs(case, case.cluster, redact=False)
    policy = json.dumps(case.config)
    # A policy is not redacted with the cluster, so one that names a resource or a label's value decides differently.
    if not any(part in policy for part in ("addedAffinity", "managedResources", "example.com/")):
        yield from _snapshot_differs(case, case.of(_started_in_turn(case.items)), redact=True)


def _snapshot_differs(case: Case, cluster: Cluster, *, redact: bool) -> Faults:
    data = cluster.snapshot(redact=redact, key=b"fuzz")
    again = Cluster.from_objects(json.loads(data)["items"], case.profiles)
    before, after = (sorted(map(_outline, map(each.decide, each.pending))) for each in (cluster, again))
    if before != after:
        yield f"{'redacted' if redact else 'snapshot'}: {before} becomes {after}"


def check_order(case: Case) -> Faults:
    """The order of the objects in a file decides nothing, not even between equally important victims."""
    turned = case.of(reversed(case.items))
    for pod in case.cluster.pending:
        before, after = (_victims(cluster.decide(cluster.pod(pod.key))) for cluster in (case.cluster, turned))
        if before != after:
            yield f"{pod.key}: evicts {before}, and {after} if the file is in reverse order"


def _victims(decision: Decision) -> dict[str, list[str]]:
    candidates = decision.preemption.candidates if decision.preemption else {}
    return {node: [victim.pod.key for victim in candidate.victims] for node, candidate in candidates.items()}


def _started_in_turn(items: Sequence[Object]) -> Iterator[Object]:
    """Yields the items; no two pods started at one moment, so that no names decide which of them is a victim."""
    for number, item in enumerate(items):
        if item["kind"] == "Pod":
            started = (_NOW + timedelta(seconds=number)).isoformat()
            yield {**item, "status": {**item.get("status", {}), "startTime": started}}
        else:
            yield item


def _outline(decision: Any) -> Any:
    """Returns what has no names in it, and does not depend on their order."""
    candidates = decision.preemption.candidates if decision.preemption else {}
    refusals = Counter[tuple[str, int]]()
    for refusal, nodes in decision.refused_nodes:
        refusals[refusal.plugin, refusal.code] += len(nodes)
    victims = sorted(len(candidate.victims) for candidate in candidates.values())
    return len(decision.feasible), sorted(decision.total.tolist()), sorted(refusals.items()), victims


def check_nodes(case: Case) -> Faults:
    """Every filter's verdict about one node agrees with the verdict of all of them."""
    explanation = case.explanation
    for node in explanation.decision.nodes if explanation.decision.error is None else ():
        refusing = [verdict.plugin for verdict in explanation.on_node(node) if verdict.reasons]
        refusal = explanation.decision.refusals.get(node)
        if refusal is None and refusing:
            yield f"{node} is feasible, but {refusing} refuse it"
        elif refusal is not None and not (refusal.plugin in refusing if refusal.plugin else refusing):
            yield f"{node} is refused by {refusal.plugin or 'preFilter'}, but with --node by {refusing}"


def check_overview(case: Case) -> Faults:
    """The list of pending pods says of each pod what its explanation says."""
    for summary in case.cluster.explain_pending():
        explanation = case.cluster.explain(f"{summary.namespace}/{summary.name}")
        decision = explanation.decision
        counts = len(decision.feasible), len(decision.nodes)
        if (summary.available, summary.nodes) != counts:
            yield f"{explanation.pod.key}: listed with {summary.available} of {summary.nodes} nodes, explained {counts}"
        if (summary.code == CauseCode.FITS) != explanation.fits:
            yield f"{explanation.pod.key}: listed as {summary.code}, explained as fits: {explanation.fits}"


def check_group(case: Case) -> Faults:
    """If the group of the pod waits alone, a simulation places as many of its members as its explanation says."""
    pod = case.cluster.pod(case.key)
    if pod.group_key is None or not case.cluster._state.objects.get(PodGroup, pod.group_key):
        return
    members = [
        item for item in case.items if item.get("kind") == "Pod" and _group_name(item) == _group_name(case.manifest)
    ]
    cluster = case.of(item if item in members else _gated(item) for item in case.items)
    explanation = cluster.explain_group(pod.group_key)
    result = cluster.simulate()
    placed = sorted(each.pod for each in result.placements)
    keys = [
        f"{item['metadata'].get('namespace', 'default')}/{item['metadata']['name']}"
        for item in members
        if _is_pending(item)
    ]
    left = [key for key in keys if key in result.remaining]
    if explanation.fits and (left or result.evictions):
        yield f"explained as fitting, but simulated with {left} pending and {len(result.evictions)} evicted"
    gets_claims = any(map(_creates_claims, members))
    if not explanation.fits and keys and not result.evictions and not left and not gets_claims:
        yield f"explained as {explanation.message!r}, but simulated with {placed} placed"
    for change in explanation.changes:
        if not change.nodes:
            yield f"{change.text}: no node"


def _group_name(item: Object) -> Any:
    return item["metadata"].get("namespace", "default"), item["spec"].get("schedulingGroup")


def check_drain(case: Case) -> Faults:
    """A drained node keeps only pods that cannot move, and every evicted pod is accounted for."""
    node = case.cluster.nodes[0]
    result = case.cluster.drain(node)
    on_node = {info.pod.key: info.pod for info in case.cluster._state.pods_on(node)}
    evicted = {each.pod for each in result.evictions}
    staying = {key for key, pod in result.pods.items() if pod.node_name == node}
    movable = {key for key, pod in on_node.items() if not is_pinned(pod) and not pod.terminating}
    if odd := {key for key in staying - set(on_node) if not _may_be_on_cordoned(case, result.pods[key])}:
        yield f"placed on the drained node: {odd}"
    if movable - evicted != set(result.kept):
        yield f"of {sorted(movable)} {sorted(evicted & movable)} are evicted, and {sorted(result.kept)} kept"
    for key in evicted - set(result.lost):
        if key not in result.pods:
            yield f"{key} is evicted, not lost, and gone"
    placed = {each.pod for each in result.placements}
    if wrong := [key for key in placed if not result.pods[key].node_name]:
        yield f"placed, but without a node: {wrong}"
    over = result.after.by_node
    for name, shares in over.items():
        before = result.before.by_node.get(name, {})
        if any(share > 1 and share > before.get(resource, 0) for resource, share in shares.items()) and not case.config:
            yield f"{name} is overcommitted: {shares}"


def _may_be_on_cordoned(case: Case, pod: Pod) -> bool:
    """Returns True if the pod tolerates cordoned nodes, as a DaemonSet's do, or the policy may not look at cordons."""
    policy = json.dumps(case.config)
    if "NodeUnschedulable" in policy and "TaintToleration" in policy:
        return True
    return not untolerated([UNSCHEDULABLE_TAINT], pod.spec.tolerations or (), [NO_SCHEDULE])


def check_request(case: Case) -> Faults:
    """POST /simulate places a new pod like the pending one exactly if explain finds a node for such a pod."""
    metadata = {
        key: case.manifest["metadata"][key] for key in ("namespace", "labels") if key in case.manifest["metadata"]
    }
    spec = {key: value for key, value in case.manifest["spec"].items() if key not in ("schedulingGates", "nodeName")}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": "more"}, "spec": spec}
    if _creates_claims(case.manifest) or "schedulingGroup" in spec:
        return
    # In a simulation terminating pods end at the start; explain shows them as they are.
    others = [item for item in case.items if "deletionTimestamp" not in item["metadata"]]
    cluster = case.of(_gated(item) for item in others if item is not case.manifest)
    try:
        expected = cluster.explain(manifest)
    except MalformedCluster as error:
        try:
            answer_simulation(cluster._state, json.dumps({"pods": [manifest]}).encode())
        except MalformedCluster:
            return
        yield f"explain refuses it, simulate does not: {error}"
        return
    answer = answer_simulation(cluster._state, json.dumps({"pods": [manifest]}).encode())
    if answer["complete"] != bool(expected.decision.feasible):
        yield f"simulated as {answer['placements'] or answer['remaining']}, explained as {expected.message!r}"


def check_texts(case: Case) -> Faults:
    """Every form of the answers can be made, and the explanation's numbers add up."""
    explanation, document = case.explanation, case.document
    lines = list(terminal.summary(explanation)) + list(terminal.nodes(explanation))
    lines += what_if.as_text(case.cluster.simulate())
    pending = case.cluster.explain_pending()
    lines += overview.as_text(pending, case.cluster.explain_pending_groups(), _NOW)
    if any("\n" in line for line in lines):
        yield "a line has two lines"
    for node, total in document["total"].items():
        if total != sum(document["scores"][node].values()):
            yield f"the scores of {node} do not add up to {total}"
    for reason in explanation.reasons:
        if re.match(r"requests (\S+); the most free is \1 on", reason.detail):
            yield f"{reason.reason}, but {reason.detail}"
    nodes = set(explanation.decision.nodes)
    if explanation.decision.error is None and nodes != set(document["feasible"]) | set(document["nodes"]):
        yield "a node is neither feasible nor refused"


CHECKS: Sequence[Check] = (
    check_simulation,
    check_suggestions,
    check_smaller,
    check_capacity,
    check_comparison,
    check_redaction,
    check_order,
    check_nodes,
    check_overview,
    check_group,
    check_drain,
    check_request,
    check_texts,
)


def faults(document: Object, checks: Sequence[Check] = CHECKS) -> dict[str, list[str]]:
    """Returns check -> what does not hold."""
    case = Case(document)
    found: dict[str, list[str]] = {}
    for check in checks:
        try:
            if wrong := list(islice(check(case), 3)):
                found[check.__name__] = wrong
        except Exception as error:
            found[check.__name__] = [f"{type(error).__name__}: {error}"]
    return found
