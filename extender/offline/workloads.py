"""Finds a workload of the cluster, such as `shop/deploy/web`, with its pods and the template of new ones."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from extender.errors import ConfigurationError, UnknownPod
from extender.model import controllers
from extender.model.meta import Object, OwnerReference
from extender.model.pod import Pod, PodStatus
from extender.model.workloads import PriorityClass, ReplicaSet, RuntimeClass, StatefulSet
from extender.offline.claims import is_of_stateful_set, replica
from extender.offline.manifests.admission import admit
from extender.offline.manifests.templates import POD_HASH, stored_workload
from extender.offline.replicas import counts_terminating, creates_pods, deletion_order, failed_indexes
from extender.offline.state import ClusterState
from extender.runtime.text import did_you_mean, nearest, whole_number
from extender.snapshots.objects import SYSTEM_CLASSES, to_pod
from extender.table import PodInfo

# A kind of workload -> kubectl's short name for it.
_SHORT_NAMES = {
    "Deployment": "deploy",
    "ReplicaSet": "rs",
    "StatefulSet": "sts",
    "Job": "job",
    "ReplicationController": "rc",
}
# kubectl's name for a kind of workload -> the kind.
_KINDS = {name: kind for kind, short in _SHORT_NAMES.items() for name in (short, kind.lower())}
_WITHOUT_REPLICAS = {
    **dict.fromkeys(("ds", "daemonset"), "a DaemonSet has no number of pods, but one on each node that it selects"),
    **dict.fromkeys(
        ("cj", "cronjob"), "a CronJob has no pods of its own; name a Job of it, or give its manifest with -f"
    ),
}
_DEPLOYMENT = "Deployment"
_REVISION = "deployment.kubernetes.io/revision"
_HASH = re.compile("[bcdfghjklmnpqrstvwxz2456789]{4,10}")  # the characters that upstream's rand.SafeEncodeString uses

Controller = (
    controllers.Deployment
    | controllers.ReplicaSet
    | controllers.StatefulSet
    | controllers.ReplicationController
    | controllers.DaemonSet
    | controllers.Job
)
_BY_KIND: dict[str, type[Object]] = {name: getattr(controllers, name) for name in _KINDS.values()}


def is_workload(word: str) -> bool:
    """Returns True for a name that kubectl has for a built-in kind of workload, such as deploy or deployments.apps."""
    return _singular(word) in {**_KINDS, **_WITHOUT_REPLICAS}


def _singular(word: str) -> str:
    name = word.lower().partition(".")[0]
    return name if name in _KINDS or name in _WITHOUT_REPLICAS else name.removesuffix("s")


@dataclass(frozen=True, slots=True)
class WorkloadReplicas:
    """The replicas of a workload of the cluster.

    Attributes:
        pods: the pods that the controller counts, the oldest first.
        related: the pods whose number on a node decides which pod is deleted first.
        template: the next pod that the controller would create. A StatefulSet's has the name of the first replica, even
            if that replica exists.
    """

    pods: Sequence[PodInfo]
    related: Sequence[PodInfo]
    template: Pod

    def _ordinal_names(self, count: int) -> dict[str, None] | None:
        """Returns the names of `count` replicas if they have ordinals, as in a StatefulSet; None for other names."""
        first = _ordinal(self.template)
        if first is None:
            return None
        base = self.template.name.rpartition("-")[0]
        return dict.fromkeys(f"{base}-{number}" for number in range(first, first + count))

    def surplus(self, count: int, now: datetime) -> list[PodInfo]:
        """Returns the pods that the controller deletes at `now` if there are to be `count`."""
        kept = self._ordinal_names(count)
        if kept is not None:
            return [info for info in self.pods if info.pod.name not in kept]
        order = deletion_order(self.pods, self.related, now)
        return order[: max(len(order) - count, 0)]

    def missing(self, count: int, taken: Iterable[str]) -> list[str]:
        """Returns the names of the pods that the controller creates; `taken` are keys of pods that exist."""
        keys, names = set(taken), self._ordinal_names(count)
        if names is not None:
            return [name for name in names if f"{self.template.namespace}/{name}" not in keys]
        numbered = (f"{self.template.name}-{number}" for number in itertools.count(1))
        free = (name for name in numbered if f"{self.template.namespace}/{name}" not in keys)
        return list(itertools.islice(free, max(count - len(self.pods), 0)))


def replicas_of(state: ClusterState, target: str) -> WorkloadReplicas:
    """Returns the replicas of the workload NAMESPACE/KIND/NAME, or those like the pod NAMESPACE/NAME.

    The template is that of the controller. If the cluster lacks the controller as an object, the newest pod is copied.

    Raises:
        UnknownPod: the cluster has neither the workload's controller nor a pod of it.
        MalformedCluster: the API server would refuse new pods of the workload.
    """
    controller = controller_of(state, target)
    pods = pods_of(state, target)
    counted = in_order(info for info in pods if not info.pod.terminating or counts_terminating(info.pod, state))
    template = (
        None if controller is None or (pods and lacks_class(controller, state)) else _newest_template(controller, state)
    )
    if template is None:
        if not pods:
            raise UnknownPod(f"{target} has no pods in this cluster, and no template that could be copied")
        template = _like(state, counted or in_order(pods))
    elif counted and not is_of_stateful_set(template):
        template = replace(template, metadata=replace(template.metadata, name=counted[-1].pod.name))
    return WorkloadReplicas(counted, _related(state, counted), template)


def controller_of(state: ClusterState, target: str) -> Controller | None:
    """Returns the object that the target names; None if it names a pod, or if the cluster lacks the object."""
    namespace, *kind, name = target.split("/")
    if len(kind) != 1 or (word := _singular(kind[0])) not in _KINDS:
        return None
    of_kind = _BY_KIND[_KINDS[word]]
    obj = state.objects.get(of_kind, f"{namespace}/{name}")
    return obj if isinstance(obj, Controller) else None


def scale_of(pod: Pod, state: ClusterState) -> tuple[str, int | None]:
    """Returns the UID of the pod's controller, and how many replicas it should have; a Deployment's for a ReplicaSet.

    The number is None if the cluster lacks the object (upstream pkg/controller/disruption, finders).
    """
    owner = pod.controller
    assert owner is not None
    found = controller_of(state, f"{pod.namespace}/{owner.kind}/{owner.name}")
    if isinstance(found, controllers.ReplicaSet) and (deployment := found.controller) is not None:
        found = controller_of(state, f"{pod.namespace}/{deployment.kind}/{deployment.name}") or found
    if found is None or isinstance(found, controllers.Job | controllers.DaemonSet):
        return owner.uid, None
    return found.uid, 1 if found.spec.replicas is None else found.spec.replicas


def with_scale(controller: Controller, count: int) -> Controller:
    """Returns the controller with another number of replicas; for a Job, of pods that run at once."""
    field = "parallelism" if isinstance(controller, controllers.Job) else "replicas"
    return replace(controller, spec=replace(controller.spec, **{field: count}))


def wanted(controller: Controller | None, count: int, active: int) -> int:
    """Returns how many pods the controller has if it is scaled to `count`, and has `active` pods now.

    A Job has at most as many pods as it lacks completions, without those of failed indexes, and none while it is
    suspended (upstream manageJob).
    """
    if not isinstance(controller, controllers.Job):
        return count
    succeeded = controller.status.succeeded or 0
    if controller.spec.completions is None and succeeded:
        return active
    if not creates_pods(controller):
        return 0
    if controller.spec.completions is None:
        return count
    return max(min(count, controller.spec.completions - succeeded - failed_indexes(controller)), 0)


def pod_of_template(controller: Controller, state: ClusterState) -> Pod:
    """Returns a new pod of the controller's template, as the API server would store it.

    Raises MalformedCluster if the API server would refuse the pod.
    """
    manifest = stored_workload(controller).manifest
    pod = admit(to_pod(manifest), manifest, state.objects).pod
    owner = pod.controller
    if owner is None or owner.kind != type(controller).__name__:  # a Deployment's ReplicaSet does not exist yet
        return pod
    reference = replace(owner, name=controller.name, uid=controller.uid)
    return replace(pod, metadata=replace(pod.metadata, owner_references=[reference]))


def _newest_template(controller: Controller, state: ClusterState) -> Pod | None:
    """Returns a pod of the controller's template; for a Deployment, of its newest ReplicaSet, which makes the pods."""
    if isinstance(controller, controllers.Deployment):
        owned = [each for each in _replica_sets(state, controller.namespace) if _is_owner(controller, each.controller)]
        newest = max(owned, key=_revision, default=None)
        controller = newest if newest is not None else controller
    return pod_of_template(controller, state) if controller.spec.template is not None else None


def _replica_sets(state: ClusterState, namespace: str) -> list[controllers.ReplicaSet]:
    found = state.objects.all(ReplicaSet).values()
    return [each for each in found if isinstance(each, controllers.ReplicaSet) and each.namespace == namespace]


def _is_owner(controller: Object, reference: OwnerReference | None) -> bool:
    return reference is not None and (reference.kind, reference.name) == (type(controller).__name__, controller.name)


def _revision(replica_set: Object) -> tuple[int, float]:
    text = replica_set.annotations.get(_REVISION, "")
    return whole_number(text) or 0, replica_set.metadata.created_seconds


def lacks_class(controller: Controller, state: ClusterState) -> bool:
    """Returns True if the file lacks the PriorityClass or RuntimeClass that the template names.

    Only a pod of the workload shows then the priority and the overhead of new pods.
    """
    spec = controller.spec.template.spec if controller.spec.template is not None else None
    if spec is None:
        return False
    name, runtime_class = spec.priority_class_name, spec.runtime_class_name
    lacks_priority = bool(name) and name not in SYSTEM_CLASSES and name not in state.objects.all(PriorityClass)
    return lacks_priority or (bool(runtime_class) and runtime_class not in state.objects.all(RuntimeClass))


def _related(state: ClusterState, infos: Sequence[PodInfo]) -> list[PodInfo]:
    """Returns the active pods of all ReplicaSets that the same object controls, such as a Deployment.

    Nothing is related to the pods of a ReplicaSet that no object controls, not even each other (upstream
    getReplicaSetsWithSameController). If the cluster lacks the ReplicaSet, an object is assumed to control it.
    """
    if not infos or (owner := infos[-1].pod.controller) is None or owner.kind != ReplicaSet.__name__:
        return []
    namespace = infos[-1].pod.namespace
    known = state.objects.get(ReplicaSet, f"{namespace}/{owner.name}")
    if known is None:
        deployment = _deployment_of(infos[-1].pod, owner.name, state)
        related = pods_of(state, f"{namespace}/deploy/{deployment}") if deployment else list(infos)
    elif known.controller is None:
        return []
    else:
        sets = {each.name for each in _replica_sets(state, namespace) if each.controller == known.controller}
        related = [info for name in sets for info in pods_of(state, f"{namespace}/rs/{name}")]
    return [info for info in related if not info.pod.terminating]


def pods_of(state: ClusterState, target: str) -> list[PodInfo]:
    """Returns the pods of a workload, or one pod if `target` names a pod.

    Raises:
        UnknownPod: there is neither such a pod nor such a workload.
        ConfigurationError: the target is not of the form NAMESPACE/KIND/NAME or NAMESPACE/NAME.
    """
    namespace, *kind, name = target.split("/")
    if not kind:
        return [_pod(state, target)]
    word = _singular(kind[0])
    if fault := _WITHOUT_REPLICAS.get(word):
        raise ConfigurationError([f"{target}: {fault}"])
    if len(kind) > 1 or word not in _KINDS:
        raise ConfigurationError([f"{target}: expected NAMESPACE/KIND/NAME with a kind of {', '.join(_KINDS)}"])
    of_kind = _KINDS[word]
    owner_kind = ReplicaSet.__name__ if of_kind == _DEPLOYMENT else of_kind

    def workload_of(pod: Pod) -> str:
        owner = pod.controller
        if owner is None or owner.kind != owner_kind:
            return ""
        return _deployment_of(pod, owner.name, state) if of_kind == _DEPLOYMENT else owner.name

    workloads = {key: (info.pod.namespace, workload_of(info.pod)) for key, info in state.infos.items()}
    infos = [state.infos[key] for key, workload in workloads.items() if workload == (namespace, name)]
    if not infos and controller_of(state, target) is None:
        stored = [(obj.namespace, obj.name) for obj in state.objects.all(_BY_KIND[of_kind]).values()]
        others = {name: f"{namespace}/{kind[0]}/{name}" for namespace, name in (*stored, *workloads.values()) if name}
        similar = did_you_mean([others[near] for near in nearest(name, others)])
        raise UnknownPod(f"no {of_kind} {namespace}/{name} in this cluster, and no pod of it{similar}")
    return infos


def _pod(state: ClusterState, key: str) -> PodInfo:
    try:
        return state.info(key)
    except UnknownPod as error:
        if key.partition("/")[0] in state.inhabited():
            raise
        raise UnknownPod(f"{error}; workloads are {', '.join(_KINDS)}, and others are given with -f") from None


def workload_name(pod: Pod, state: ClusterState) -> str:
    """Returns what made the pod, such as `Deployment web`; "" if no controller did."""
    owner = pod.controller
    if owner is None:
        return ""
    deployment = _deployment_of(pod, owner.name, state) if owner.kind == ReplicaSet.__name__ else ""
    return f"{_DEPLOYMENT} {deployment}" if deployment else f"{owner.kind} {owner.name}"


def _deployment_of(pod: Pod, replica_set: str, state: ClusterState) -> str:
    """Returns the name of the Deployment that controls the pod's ReplicaSet; "" if no Deployment controls it.

    The ReplicaSet's owner reference decides. If the cluster lacks the ReplicaSet, its name decides: DEPLOYMENT-HASH.
    HASH is the value of the pod's label pod-template-hash, or, without this label, any text that looks like a hash.
    """
    known = state.objects.get(ReplicaSet, f"{pod.namespace}/{replica_set}")
    if known is not None and known.controller is not None:
        return known.controller.name if known.controller.kind == _DEPLOYMENT else ""
    name, _, last = replica_set.rpartition("-")
    is_hash = pod.labels[POD_HASH] == last if POD_HASH in pod.labels else bool(_HASH.fullmatch(last))
    return name if is_hash else ""


def in_order(infos: Iterable[PodInfo]) -> list[PodInfo]:
    """Returns the pods in the order of their creation, the oldest first."""
    return sorted(infos, key=lambda info: (info.pod.metadata.created_seconds, info.pod.key))


def as_created(pod: Pod) -> Pod:
    """Returns a new pod as the pod's controller would create it: without a node and with an empty status."""
    return replace(pod.placed_on(""), metadata=replace(pod.metadata, deletion_timestamp=None), status=PodStatus())


def _like(state: ClusterState, infos: Sequence[PodInfo]) -> Pod:
    """Returns a new pod like the newest of the workload's pods; for a StatefulSet, under the name of the first replica.

    If the cluster lacks the StatefulSet itself, the first ordinal is the lowest one of its pods.
    """
    pod = as_created(infos[-1].pod)
    ordinals = [number for info in infos if (number := _ordinal(info.pod)) is not None]
    if len(ordinals) < len(infos):
        return pod
    name = pod.name.rpartition("-")[0]
    stateful_set = state.objects.get(StatefulSet, f"{pod.namespace}/{name}")
    first = min(ordinals) if stateful_set is None else stateful_set.first_ordinal
    return replica(pod, f"{name}-{first}", pod.uid)


def _ordinal(pod: Pod) -> int | None:
    """Returns the number at the end of the name of a StatefulSet's pod; None for other pods."""
    base, _, ordinal = pod.name.rpartition("-")
    is_numbered = is_of_stateful_set(pod) and pod.controller is not None and pod.controller.name == base
    return whole_number(ordinal) if is_numbered else None
