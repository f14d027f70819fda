"""Incidents of pod groups with one known cause each, and what `explain` must say about them.

An incident begins with a cluster in which the group fits. Then one thing goes wrong: a node is cordoned, a claim is
missing, a member is gated. `explain` must name this cause, with the objects in it, and its smallest change must admit
the group when it is carried out.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from extender import Cluster
from extender.offline.answers import CauseCode
from extender.offline.explain.group import GroupExplanation
from extender.offline.explain.terminal import group_summary
from tests.answers.carrying_out import carried_out
from tests.builders import (
    Object,
    make_composite_pod_group,
    make_device_class,
    make_node,
    make_pod,
    make_pod_group,
    make_pvc,
    make_resource_claim,
    make_resource_slice,
    make_storage_class,
)
from tests.builders.pod import PodBuilder

HOSTNAME = "kubernetes.io/hostname"
RACK = "example.com/rack"
GROUP = "ml/train"


@dataclass(slots=True)
class Incident:
    """A cluster with a group that does not fit.

    Attributes:
        code: the code of the cause.
        words: what the answer must contain: the objects, keys or numbers behind the cause.
        kind: the kind of the group that is explained.
    """

    objects: list[Object]
    code: CauseCode
    words: list[str] = field(default_factory=list)
    kind: str = "PodGroup"

    def cluster(self) -> Cluster:
        return Cluster.from_objects(self.objects)


Change = Callable[[PodBuilder], object]


@dataclass(slots=True)
class Healthy:
    """A cluster in which a gang fits exactly: each of its members fills the half of a node.

    Attributes:
        size: the number of members; two fit on a node.
        nodes: the names of the nodes that the gang needs, in racks of two.
        noise: objects that have nothing to do with the gang.
    """

    size: int
    nodes: list[str]
    noise: list[Object]
    random: Random

    def node(self, name: str, cpu: str = "8", memory: str = "32Gi", **more: str) -> Object:
        rack = f"r{self.nodes.index(name) // 2}"
        offered = {"cpu": cpu, "memory": memory, "pods": "10", **more}
        return make_node(name).allocatable(offered).label({HOSTNAME: name, RACK: rack}).obj()

    def all_nodes(self) -> list[Object]:
        return [self.node(name) for name in self.nodes]

    def members(self, change: Change = lambda pod: None, only: int | None = None, group: str = "train") -> list[Object]:
        """The members; `change` changes each, or only the one with the number `only`."""
        pods = []
        for number in range(self.size):
            pod = make_pod(f"{group}-{number}", "ml").group(group).req(cpu="4", memory="8Gi")
            if only is None or only == number:
                change(pod)
            pods.append(pod.obj())
        return pods

    def gang(self, **spec: object) -> Object:
        return make_pod_group("train", self.size, namespace="ml", **spec)

    def with_gang(self, *pods: Object) -> list[Object]:
        return [*self.all_nodes(), *self.noise, self.gang(), *pods]


def healthy(random: Random) -> Healthy:
    size = 2 * random.randint(1, 5)
    nodes = [f"n{number}" for number in range(size // 2)]
    noise = [make_node("control").allocatable(cpu="4", memory="8Gi", pods="10").taint("control-plane").obj()]
    noise += [
        make_pod(f"system-{number}", "kube-system").node("control").obj() for number in range(random.randint(0, 3))
    ]
    return Healthy(size, nodes, noise, random)


# ---- one function for each kind of incident


def too_much_cpu(cluster: Healthy) -> Incident:
    pods = cluster.members(lambda pod: pod.req(cpu="5"), cluster.random.randrange(cluster.size))
    return Incident(cluster.with_gang(*pods), CauseCode.INSUFFICIENT_RESOURCE, ["Insufficient cpu"])


def too_much_memory(cluster: Healthy) -> Incident:
    pods = cluster.members(lambda pod: pod.req(memory="33Gi"), cluster.random.randrange(cluster.size))
    return Incident(cluster.with_gang(*pods), CauseCode.INSUFFICIENT_RESOURCE, ["Insufficient memory", "33Gi"])


def an_extended_resource_is_short(cluster: Healthy) -> Incident:
    nodes = [cluster.node(name, **{"example.com/gpu": "2"}) for name in cluster.nodes[1:]]
    nodes.append(cluster.node(cluster.nodes[0], **{"example.com/gpu": "1"}))
    pods = cluster.members(lambda pod: pod.req({"example.com/gpu": "1"}).limit({"example.com/gpu": "1"}))
    objects = [*nodes, *cluster.noise, cluster.gang(), *pods]
    return Incident(objects, CauseCode.INSUFFICIENT_RESOURCE, ["Insufficient example.com/gpu"])


def a_node_is_full_of_others(cluster: Healthy) -> Incident:
    name = cluster.random.choice(cluster.nodes)
    other = make_pod("busy", "shop").req(cpu="6").node(name).priority(10).obj()
    return Incident([*cluster.with_gang(*cluster.members()), other], CauseCode.INSUFFICIENT_RESOURCE, ["shop/busy"])


def a_node_is_full_of_less_important_pods(cluster: Healthy) -> Incident:
    name = cluster.random.choice(cluster.nodes)
    other = make_pod("batch", "shop").req(cpu="8").node(name).priority(-5).obj()
    objects = [*cluster.with_gang(*cluster.members()), other]
    return Incident(objects, CauseCode.INSUFFICIENT_RESOURCE, [f"would evict shop/batch from {name}"])


def a_less_important_group_goes_whole(cluster: Healthy) -> Incident:
    low = make_pod_group("low", 1, namespace="shop", priority=-5, disruptionMode={"all": {}})
    pods = [
        make_pod(f"low-{number}", "shop").group("low").req(cpu="5").node(name).priority(-5).obj()
        for number, name in enumerate(cluster.nodes)
    ]
    objects = [*cluster.with_gang(*cluster.members()), low, *pods]
    return Incident(objects, CauseCode.INSUFFICIENT_RESOURCE, ["the whole PodGroup shop/low"])


def a_node_has_too_many_pods(cluster: Healthy) -> Incident:
    name = cluster.random.choice(cluster.nodes)
    others = [make_pod(f"small-{number}", "shop").node(name).obj() for number in range(9)]
    return Incident([*cluster.with_gang(*cluster.members()), *others], CauseCode.TOO_MANY_PODS, ["Too many pods"])


def a_node_is_cordoned(cluster: Healthy) -> Incident:
    name = cluster.random.choice(cluster.nodes)
    nodes = [
        {**node, "spec": {"unschedulable": True}} if node["metadata"]["name"] == name else node
        for node in cluster.all_nodes()
    ]
    objects = [*nodes, *cluster.noise, cluster.gang(), *cluster.members()]
    return Incident(objects, CauseCode.CORDONED, [f"uncordon {name}"])


def a_node_is_tainted(cluster: Healthy) -> Incident:
    name = cluster.random.choice(cluster.nodes)
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    nodes = [
        {**node, "spec": {"taints": [taint]}} if node["metadata"]["name"] == name else node
        for node in cluster.all_nodes()
    ]
    objects = [*nodes, *cluster.noise, cluster.gang(), *cluster.members()]
    return Incident(objects, CauseCode.TAINT, ["example.com/broken"])


def a_node_is_missing(cluster: Healthy) -> Incident:
    cluster.size += 2
    return Incident(cluster.with_gang(*cluster.members()), CauseCode.INSUFFICIENT_RESOURCE, ["add 1 node like"])


def no_node_has_the_label(cluster: Healthy) -> Incident:
    pods = cluster.members(lambda pod: pod.node_selector({"disk": "nvme"}))
    return Incident(cluster.with_gang(*pods), CauseCode.NODE_SELECTION, ["disk=nvme"])


def one_member_wants_a_label(cluster: Healthy) -> Incident:
    pods = cluster.members(lambda pod: pod.node_selector({"disk": "nvme"}), cluster.random.randrange(cluster.size))
    return Incident(cluster.with_gang(*pods), CauseCode.NODE_SELECTION, ["disk=nvme"])


def members_avoid_each_other(cluster: Healthy) -> Incident:
    labels = {"app": "train"}
    pods = cluster.members(lambda pod: pod.label(labels).anti_affinity(HOSTNAME, labelSelector={"matchLabels": labels}))
    return Incident(cluster.with_gang(*pods), CauseCode.POD_AFFINITY, ["anti-affinity"])


def another_pod_keeps_members_away(cluster: Healthy) -> Incident:
    selector = {"matchLabels": {"app": "train"}}
    name = cluster.random.choice(cluster.nodes)
    other = make_pod("shy", "ml").node(name).priority(10).anti_affinity(HOSTNAME, labelSelector=selector).obj()
    pods = cluster.members(lambda pod: pod.label({"app": "train"}))
    return Incident([*cluster.with_gang(*pods), other], CauseCode.POD_AFFINITY, ["ml/shy"])


def members_want_the_same_port(cluster: Healthy) -> Incident:
    pods = cluster.members(lambda pod: pod.host_port(8080))
    return Incident(cluster.with_gang(*pods), CauseCode.HOST_PORT, ["8080"])


def members_cannot_spread(cluster: Healthy) -> Incident:
    labels = {"app": "train"}
    cluster.size, cluster.nodes = 4, ["n0", "n1"]
    others = [make_pod(f"old-{number}", "ml").label(labels).node("n0").obj() for number in range(2)]
    pods = cluster.members(lambda pod: pod.label(labels).spread(HOSTNAME, labels=labels))
    return Incident([*cluster.with_gang(*pods), *others], CauseCode.TOPOLOGY_SPREAD, ["topology spread"])


def no_rack_is_large_enough(cluster: Healthy) -> Incident:
    cluster.size, cluster.nodes = 8, [f"n{number}" for number in range(4)]
    gang = cluster.gang(schedulingConstraints={"topology": [{"key": RACK}]})
    objects = [*cluster.all_nodes(), *cluster.noise, gang, *cluster.members()]
    return Incident(objects, CauseCode.TOPOLOGY, [RACK, "r0", "r1", "4 of 8"])


def no_node_has_a_rack(cluster: Healthy) -> Incident:
    gang = cluster.gang(schedulingConstraints={"topology": [{"key": "example.com/row"}]})
    objects = [*cluster.all_nodes(), *cluster.noise, gang, *cluster.members()]
    return Incident(objects, CauseCode.TOPOLOGY, ["no node has the label example.com/row"])


def members_run_in_two_racks(cluster: Healthy) -> Incident:
    cluster.size, cluster.nodes = 8, [f"n{number}" for number in range(4)]
    gang = cluster.gang(schedulingConstraints={"topology": [{"key": RACK}]})
    pods = cluster.members()
    for pod, name in zip(pods, ("n0", "n3"), strict=False):
        pod["spec"]["nodeName"] = name
    objects = [*cluster.all_nodes(), *cluster.noise, gang, *pods]
    return Incident(objects, CauseCode.TOPOLOGY, ["more than 1 domain"])


def pods_are_missing(cluster: Healthy) -> Incident:
    missing = cluster.random.randint(1, cluster.size - 1)
    pods = cluster.members()[missing:]
    words = [f"{len(pods)} of {cluster.size} pods exist"]
    return Incident(cluster.with_gang(*pods), CauseCode.SHORT_OF_PODS, words)


def the_group_is_missing(cluster: Healthy) -> Incident:
    objects = [*cluster.all_nodes(), *cluster.noise, *cluster.members()]
    return Incident(objects, CauseCode.NO_GROUP, [f"PodGroup {GROUP} does not exist"])


def the_parent_is_missing(cluster: Healthy) -> Incident:
    gang = cluster.gang(parentCompositePodGroupName="job")
    objects = [*cluster.all_nodes(), *cluster.noise, gang, *cluster.members()]
    return Incident(objects, CauseCode.NO_GROUP, ["CompositePodGroup ml/job does not exist"])


def a_member_is_gated(cluster: Healthy) -> Incident:
    number = cluster.random.randrange(cluster.size)
    pods = cluster.members(lambda pod: pod.gate("example.com/quota"), number)
    return Incident(cluster.with_gang(*pods), CauseCode.GATED, [f"train-{number}", "example.com/quota"])


def a_member_has_another_priority(cluster: Healthy) -> Incident:
    pods = cluster.members(lambda pod: pod.priority(7), cluster.random.randrange(cluster.size))
    return Incident(cluster.with_gang(*pods), CauseCode.DIFFERENT_MEMBERS, ["priority", "7"])


def a_member_has_another_scheduler(cluster: Healthy) -> Incident:
    pods = cluster.members(lambda pod: pod.scheduler("mine"), cluster.random.randrange(cluster.size))
    return Incident(cluster.with_gang(*pods), CauseCode.DIFFERENT_MEMBERS, ["schedulerName", "mine"])


def a_member_never_preempts(cluster: Healthy) -> Incident:
    pods = cluster.members(lambda pod: pod.preemption_policy("Never"), cluster.random.randrange(cluster.size))
    return Incident(cluster.with_gang(*pods), CauseCode.DIFFERENT_MEMBERS, ["preemption policy", "Never"])


def _two_children(cluster: Healthy, pods: Mapping[str, list[Object]]) -> list[Object]:
    tree = make_composite_pod_group("job", 2, namespace="ml")
    children = [
        make_pod_group(name, len(pods["train"]), namespace="ml", parentCompositePodGroupName="job") for name in pods
    ]
    every_pod = [pod for each in pods.values() for pod in each]
    return [*cluster.all_nodes(), *cluster.noise, tree, *children, *every_pod]


def a_child_group_finds_no_room(cluster: Healthy) -> Incident:
    pods = {name: cluster.members(group=name) for name in ("train", "serve")}
    objects = _two_children(cluster, pods)
    words = ["1 of 2 child groups fit", "ml/serve", "Insufficient cpu"]
    return Incident(objects, CauseCode.INSUFFICIENT_RESOURCE, words, "CompositePodGroup")


def a_child_group_is_short_of_pods(cluster: Healthy) -> Incident:
    pods = {"train": cluster.members(), "serve": cluster.members(group="serve")[1:]}
    cluster.nodes += [f"m{number}" for number in range(len(cluster.nodes))]
    words = ["1 of 2 child groups have enough pods"]
    return Incident(_two_children(cluster, pods), CauseCode.SHORT_OF_PODS, words, "CompositePodGroup")


def devices_run_out(cluster: Healthy) -> Incident:
    slices = [make_resource_slice(name, "gpu.example.com", "gpu-0", "gpu-1") for name in cluster.nodes[1:]]
    slices.append(make_resource_slice(cluster.nodes[0], "gpu.example.com", "gpu-0"))
    claims = [{**make_resource_claim(f"train-{number}", "gpu", namespace="ml")} for number in range(cluster.size)]
    pods = cluster.members()
    for number, pod in enumerate(pods):
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"train-{number}"}]
    gpu = make_device_class("gpu", 'device.driver == "gpu.example.com"')
    return Incident(
        [*cluster.with_gang(*pods), gpu, *slices, *claims], CauseCode.DEVICE, ["cannot allocate all claims"]
    )


def a_claim_is_missing(cluster: Healthy) -> Incident:
    pods = cluster.members(lambda pod: pod.pvc("data"), cluster.random.randrange(cluster.size))
    existing = [make_storage_class("fast"), make_pvc("other", namespace="ml", storage_class="fast")]
    return Incident(
        [*cluster.with_gang(*pods), *existing], CauseCode.VOLUME, ['persistentvolumeclaim "data" not found']
    )


INCIDENTS: tuple[Callable[[Healthy], Incident], ...] = (
    too_much_cpu,
    too_much_memory,
    an_extended_resource_is_short,
    a_node_is_full_of_others,
    a_node_is_full_of_less_important_pods,
    a_less_important_group_goes_whole,
    a_node_has_too_many_pods,
    a_node_is_cordoned,
    a_node_is_tainted,
    a_node_is_missing,
    no_node_has_the_label,
    one_member_wants_a_label,
    members_avoid_each_other,
    another_pod_keeps_members_away,
    members_want_the_same_port,
    members_cannot_spread,
    no_rack_is_large_enough,
    no_node_has_a_rack,
    members_run_in_two_racks,
    pods_are_missing,
    the_group_is_missing,
    the_parent_is_missing,
    a_member_is_gated,
    a_member_has_another_priority,
    a_member_has_another_scheduler,
    a_member_never_preempts,
    a_child_group_finds_no_room,
    a_child_group_is_short_of_pods,
    devices_run_out,
    a_claim_is_missing,
)


def drawn(seed: int, number: int) -> Incident:
    """Returns an incident; those with consecutive numbers go through all kinds."""
    return INCIDENTS[number % len(INCIDENTS)](healthy(Random(f"{seed}/{number}")))


# ---- what the answer must say


def explained(objects: list[Object], kind: str) -> GroupExplanation:
    name = "ml/job" if kind == "CompositePodGroup" else GROUP
    return Cluster.from_objects(objects).explain_group(name, kind)


def names_cause(incident: Incident, explanation: GroupExplanation) -> str | None:
    """Returns what the explanation lacks of the true cause; None if it names it."""
    if explanation.fits:
        return "the group fits"
    if incident.code not in explanation.causes:
        return f"{incident.code} is not among {explanation.causes}"
    text = "\n".join(group_summary(explanation))
    lacking = [word for word in incident.words if word not in text]
    return f"{lacking} not in:\n{text}" if lacking else None


def change_holds(incident: Incident, explanation: GroupExplanation) -> str | None:
    """Returns what is wrong if the smallest change is carried out; None if it admits the group."""
    if not explanation.changes:
        return "no change is suggested"
    change = explanation.changes[0]
    after = explained(carried_out(incident.objects, change.to_dict()), incident.kind)
    decision = after.verdict.decision
    admitted = decision is not None and decision.is_success
    lowers = "min-count" in change.kind.split("+")
    return None if after.fits or (admitted and lowers) else f"after {change.text!r}: {after.message}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="group-incidents", description=__doc__)
    parser.add_argument("--incidents", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), metavar="N")
    parser.add_argument("--only", type=int, metavar="N", help="print the answer about one incident of the seed")
    options = parser.parse_args()
    if options.only is not None:
        incident = drawn(options.seed, options.only)
        print("\n".join(group_summary(explained(incident.objects, incident.kind))))
        return 0
    unnamed, unheld = 0, 0
    for number, lacking, wrong in judged(options.seed, options.incidents):
        unnamed += lacking is not None
        unheld += wrong is not None
        for fault in (lacking, wrong):
            if fault is not None:
                print(f"{number} {INCIDENTS[number % len(INCIDENTS)].__name__}: {fault}", flush=True)
    print(
        f"seed {options.seed}: {options.incidents} incidents, the cause not named in {unnamed}, "
        f"the smallest change does not hold in {unheld}"
    )
    return 1 if unnamed or unheld else 0


def judged(seed: int, incidents: int) -> Iterator[tuple[int, str | None, str | None]]:
    """Yields the number of each incident, what its explanation lacks, and what is wrong with its smallest change."""
    for number in range(incidents):
        incident = drawn(seed, number)
        explanation = explained(incident.objects, incident.kind)
        yield number, names_cause(incident, explanation), change_holds(incident, explanation)


if __name__ == "__main__":
    raise SystemExit(main())
