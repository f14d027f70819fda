"""Checks the cluster for `extender doctor`: its version, clock, APIs and Lease, and the permissions of the account.

It also checks that the extender's own pods are placed while no replica answers, because they could never start
otherwise. Each check yields findings, which say what to do.
"""

from __future__ import annotations

import enum
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from extender.cluster.kube_client import ApiCall, KubeClient, error_of
from extender.cluster.watch.api_objects import decoders
from extender.config.cluster_access import ClusterAccess
from extender.errors import ClusterError, NotFound
from extender.model.extender_config import ExtenderConfig
from extender.model.kinds import COSCHEDULING_POD_GROUPS, KINDS, Kind
from extender.model.pod import Pod
from extender.model.pod_groups import PodGroup
from extender.plugins.registry import DEFAULT_SCHEDULER
from extender.policy.policy import Policy, followed


class Level(enum.StrEnum):
    """The severity of a finding. `fail` means that pods stay pending or are placed wrongly; `warn` is less urgent."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        check: the check's name, which is also its heading in docs/doctor.md.
        fix: what to do; empty if the level is `ok`.
    """

    level: Level
    check: str
    message: str
    fix: str = ""

    @property
    def docs(self) -> str:
        """The section of the documentation that explains the check, as a relative link."""
        return f"docs/doctor.md#{self.check}"


ok = partial(Finding, Level.OK)
warn = partial(Finding, Level.WARN)
fail = partial(Finding, Level.FAIL)


@dataclass(frozen=True, slots=True)
class Installation:
    """Names the parts of an installation for the doctor. A check whose part is None is skipped.

    Attributes:
        mode: SERVE, SERVE_PREEMPTING or SCHEDULE, which need different permissions.
        access: how to reach the cluster; without it, nothing in the cluster is checked.
        account: NAMESPACE/NAME of the extender's service account; empty for the kubeconfig's user.
        leases: NAMESPACE/NAME of each Lease that a replica should hold; empty without leader election.
        leader_service: the Service that the leader points at itself, in the first Lease's namespace; empty without one.
        scheduler_config: the file that kube-scheduler gets as --config.
        extender: how to reach the extender, used if `scheduler_config` has no entry for an extender.
        policy: the file that the extender gets as --policy.
    """

    mode: str
    access: ClusterAccess | None = None
    account: str = ""
    leases: Sequence[str] = ()
    leader_service: str = ""
    scheduler_config: Path | None = None
    extender: ExtenderConfig | None = None
    policy: Path | None = None


WAIT_SECONDS = 5.0
SKEW_WARN_SECONDS = 2.0
SERVE, SCHEDULE, SERVE_PREEMPTING = "serve", "schedule", "serve --preempt-for-rules"
_CONCURRENT_REVIEWS = 8


def check_cluster(client: KubeClient, leases: Iterable[str] = ()) -> Iterator[Finding]:
    """Checks the API server's version, clock and APIs, and Leases.

    Args:
        leases: NAMESPACE/NAME of each Lease that a replica should hold.

    Raises:
        ClusterError: the API server does not answer.
    """
    before = time.time()
    version, date = _get(client, "/version")
    yield _version(str(version.get("gitVersion", "")))
    yield _clock(date, before, time.time())
    yield from _served(client)
    yield _pod_groups(client)
    for lease in leases:
        yield _lease(client, *lease.partition("/")[::2])


def _get(client: KubeClient, path: str) -> tuple[dict[str, Any], str]:
    with client.get(path, {}, WAIT_SECONDS) as response:
        body, date = response.read(), response.header(b"date")
    if response.status != 200:
        error = error_of(response.status, body)
        # For a path that it does not serve, the API server answers 404 in plain text.
        raise NotFound(str(error), 404) if response.status == 404 else error
    document = msgspec.json.decode(body)
    return (document if isinstance(document, dict) else {}), date


def _version(git_version: str) -> Finding:
    _, warning = followed(git_version)
    if warning is None:
        return ok("version", f"Kubernetes {git_version}")
    return warn(
        "version",
        f"{git_version or 'no gitVersion'}: {warning}",
        "expect decisions that differ from kube-scheduler's, or use an extender that follows this version",
    )


def _clock(date: str, before: float, after: float) -> Finding:
    try:
        skew_seconds = parsedate_to_datetime(date).timestamp() + 0.5 - (before + after) / 2
    except (TypeError, ValueError):
        return ok("clock", "the API server does not send its time")
    if abs(skew_seconds) <= SKEW_WARN_SECONDS + (after - before):
        return ok("clock", "the clocks agree")
    ahead = "behind" if skew_seconds > 0 else "ahead of"
    return warn(
        "clock",
        f"this machine's clock is {abs(skew_seconds):.0f} s {ahead} the API server's",
        "synchronise both clocks (chrony, systemd-timesyncd), because ages, expiry and certificates depend on them",
    )


def _served(client: KubeClient) -> Iterator[Finding]:
    missing: list[str] = []
    kinds = [kind for kind in KINDS.values() if not kind.optional]
    for api_version in dict.fromkeys(kind.api_version for kind in kinds):
        plurals = {kind.plural for kind in kinds if kind.api_version == api_version}
        missing += [f"{plural} ({api_version})" for plural in sorted(plurals - _served_plurals(client, api_version))]
    if missing:
        yield warn(
            "served-apis",
            f"the API server does not serve {', '.join(missing)}",
            "the extender assumes that no such objects exist; if pods need them, enable these APIs (--runtime-config)",
        )
    else:
        yield ok("served-apis", f"the API server serves all {len(kinds)} kinds that scheduling reads")


def _pod_groups(client: KubeClient) -> Finding:
    """Checks that the API server serves PodGroups in the version that kube-scheduler and the extender read."""
    group_version = KINDS[PodGroup.__name__].api_version
    group = group_version.partition("/")[0]
    try:
        document, _ = _get(client, f"/apis/{group}")
    except NotFound:
        document = {}
    served = [str(version["groupVersion"]) for version in document.get("versions", ())]
    served = [version for version in served if _serves_pod_groups(client, version)]
    if not served and _serves_pod_groups(client, COSCHEDULING_POD_GROUPS.api_version):
        return ok(
            "pod-groups",
            "coscheduling's PodGroups are served; `extender serve --coscheduling` places the pods of each together",
        )
    if not served:
        return ok(
            "pod-groups",
            "PodGroups are not served; a kube-scheduler with the feature gate GenericWorkload would schedule no pod",
        )
    if group_version not in served:
        return warn(
            "pod-groups",
            f"PodGroups are served as {', '.join(served)}, but the extender reads {group_version}",
            "leave pods with a spec.schedulingGroup to kube-scheduler",
        )
    return ok(
        "pod-groups",
        f"PodGroups are served ({group_version}); set the feature gate GenericWorkload to kube-scheduler's value",
    )


def _serves_pod_groups(client: KubeClient, group_version: str) -> bool:
    return KINDS[PodGroup.__name__].plural in _served_plurals(client, group_version)


def _served_plurals(client: KubeClient, api_version: str) -> set[str]:
    """Returns the plurals of the kinds in `api_version`; empty if the API server does not serve this version."""
    try:
        document, _ = _get(client, f"{'/apis' if '/' in api_version else '/api'}/{api_version}")
    except NotFound:
        return set()
    return {str(resource.get("name")) for resource in document.get("resources", ())}


def _lease(client: KubeClient, namespace: str, name: str) -> Finding:
    title = f"Lease {namespace}/{name}"
    try:
        document, _ = _get(client, f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
    except NotFound:
        return fail(
            "lease", f"{title} does not exist, so no replica has led yet", "start a replica with --leader-elect"
        )
    except ClusterError as error:
        return fail("lease", f"{title} cannot be read: {error}", "grant get on leases in that namespace")
    spec = document.get("spec", {})
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if not holder or not renewed:
        return fail("lease", f"{title} has no holder", "check if a replica is ready: kubectl get pods")
    age_seconds = time.time() - datetime.fromisoformat(renewed).timestamp()
    if age_seconds > float(spec.get("leaseDurationSeconds") or 0):
        return fail(
            "lease",
            f"{title} was renewed {age_seconds:.0f} s ago by {holder}, so there is no leader",
            "check if a replica is ready, and if its account may update the Lease",
        )
    return ok("lease", f"{holder} holds {title}")


class Right(NamedTuple):
    """A verb on a resource of an API group; `resource` may name a subresource, such as pods/binding.

    Without a namespace it is a right in all of them; without a name, to all objects.
    """

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.object}"

    @property
    def object(self) -> str:
        """The object of the verb, such as leases.coordination.k8s.io extender in extender-system."""
        words = [f"{self.resource}{'.' if self.group else ''}{self.group}", self.name]
        return " ".join(filter(None, words)) + (f" in {self.namespace}" if self.namespace else "")


def _rights(group: str, resource: str, *verbs: str) -> list[Right]:
    return [Right(group, resource, verb) for verb in verbs]


def _own_rights(group: str, resource: str, namespace: str, name: str) -> list[Right]:
    """Returns the rights to create an object and to write it. RBAC knows no names for create."""
    named = [Right(group, resource, verb, namespace, name) for verb in ("get", "update")]
    return [Right(group, resource, "create", namespace), *named]


def _election_rights(installation: Installation) -> Iterator[Right]:
    """Yields what a replica needs to lead by these Leases, and to point a Service at itself."""
    for lease in installation.leases:
        namespace, _, name = lease.partition("/")
        yield from _own_rights("coordination.k8s.io", "leases", namespace, name)
        yield Right("events.k8s.io", "events", "create", namespace)  # an event says that the leader has changed
    if installation.leader_service:
        namespace = installation.leases[0].partition("/")[0]
        yield from _own_rights("discovery.k8s.io", "endpointslices", namespace, installation.leader_service)


def _read_rights(kinds: Iterable[Kind]) -> list[Right]:
    return [
        right for kind in kinds for right in _rights(kind.api_version.rpartition("/")[0], kind.plural, "list", "watch")
    ]


_READ = _read_rights(KINDS.values())
_BIND = _rights("", "pods/binding", "create")
_STATUS = _rights("", "pods/status", "patch")
_PREEMPT = [*_rights("", "pods", "delete"), *_rights("events.k8s.io", "events", "create", "patch")]
NEEDED = {
    SERVE: [*_READ, *_BIND, *_STATUS],
    SERVE_PREEMPTING: [*_READ, *_BIND, *_STATUS, *_PREEMPT],
    SCHEDULE: [
        *_READ,
        *_BIND,
        *_STATUS,
        *_PREEMPT,
        *_rights("", "persistentvolumes", "patch"),
        *_rights("", "persistentvolumeclaims", "patch"),
        *_rights("scheduling.k8s.io", "podgroups/status", "patch"),
        *_rights("scheduling.k8s.io", "compositepodgroups/status", "patch"),
        *_rights("resource.k8s.io", "resourceclaims", "get", "create", "delete", "patch"),
        *_rights("resource.k8s.io", "resourceclaims/status", "patch"),
        *_rights("resource.k8s.io", "resourceclaims/binding", "patch"),
    ],
}
_MORE_THAN_NEEDED = [
    Right("", "secrets", "get"),
    Right("", "nodes", "delete"),
    Right("", "pods", "create"),
    Right("rbac.authorization.k8s.io", "clusterroles", "escalate"),
]


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _ReviewStatus


_DECODE_REVIEW = msgspec.json.Decoder(_Review).decode


def check_rights(client: KubeClient, installation: Installation, watch: Iterable[Kind] = ()) -> Iterator[Finding]:
    """Checks which permissions the account needs but lacks, and which dangerous ones it has.

    `watch` are the kinds that the policy watches for users' rules.
    """
    mode, account = installation.mode, installation.account
    who = f"service account {account}" if account else "this account"
    rights = (*NEEDED[mode], *_read_rights(watch), *_election_rights(installation))
    needed = list(dict.fromkeys(rights))
    missing = _refused(client, needed, account)
    if missing:
        verbs: dict[str, list[str]] = defaultdict(list)
        for right in missing:
            verbs[right.object].append(right.verb)
        lacking = "; ".join(f"{', '.join(its_verbs)} {resource}" for resource, its_verbs in verbs.items())
        yield fail(
            "rights",
            f"{who} may not {lacking}",
            f"apply the ClusterRole of `extender {mode}` (chart or manifests) and bind it to {who}",
        )
    else:
        yield ok("rights", f"{who} has all {len(needed)} permissions that `extender {mode}` needs")
    extra = [right for right in _MORE_THAN_NEEDED if _may(client, right, account)]
    if extra:
        yield warn(
            "too-many-rights",
            f"{who} has permissions that the extender does not need: {', '.join(map(str, extra))}",
            "run the extender with the service account of the chart; check that one with --account NAMESPACE/NAME",
        )


def _refused(client: KubeClient, rights: Sequence[Right], account: str) -> list[Right]:
    with ThreadPoolExecutor(_CONCURRENT_REVIEWS) as pool:
        allowed = list(pool.map(lambda right: _may(client, right, account), rights))
    return [right for right, yes in zip(rights, allowed, strict=True) if not yes]


def _may(client: KubeClient, right: Right, account: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {"group": right.group, "resource": resource, "subresource": subresource, "verb": right.verb}
    spec: dict[str, Any] = {"resourceAttributes": {**attributes, "namespace": right.namespace, "name": right.name}}
    kind = "SelfSubjectAccessReview"
    if account:
        owner, _, name = account.partition("/")
        kind, spec["user"] = "SubjectAccessReview", f"system:serviceaccount:{owner}:{name}"
        spec["groups"] = ["system:serviceaccounts", f"system:serviceaccounts:{owner}", "system:authenticated"]
    review = msgspec.json.encode({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec})
    path = f"/apis/authorization.k8s.io/v1/{kind.lower()}s"
    return client.call_for(_DECODE_REVIEW, ApiCall("POST", path, review)).status.allowed


def own_pods(client: KubeClient, account: str) -> list[Pod]:
    """Returns a pod as each Deployment of the service account creates it. Raises ClusterError if they cannot be listed.

    Deployments are read, because they exist even if none of their pods does.
    """
    namespace, _, name = account.partition("/")
    path = f"/apis/apps/v1/namespaces/{quote(namespace, '')}/deployments"
    deployments = client.call_for(msgspec.json.decode, ApiCall("GET", path))["items"]
    templates = [each["spec"]["template"] for each in deployments]
    own = [each for each in templates if each["spec"].get("serviceAccountName", "default") == name]
    decode = decoders(KINDS[Pod.__name__])[1]
    pods = [decode(msgspec.Raw(msgspec.json.encode(each))) for each in own]
    return [pod for pod in pods if isinstance(pod, Pod)]


def check_own_pods(configuration: Policy, pods: Sequence[Pod]) -> Iterator[Finding]:
    """Checks, for each entry that must answer, that kube-scheduler does not ask it about these pods."""
    names = {profile.name for profile in configuration.profiles}
    own = [pod for pod in pods if (pod.spec.scheduler_name or DEFAULT_SCHEDULER) in names]
    for config in configuration.extenders:
        must_answer = not config.ignorable and (config.filter_verb or config.bind_verb)
        if must_answer and any(map(config.is_interested, own)):
            yield warn(
                "own-pods",
                f"{config.url_prefix}: if no replica answers, the extender's own pods stay pending too, so it cannot"
                " come back",
                "set ignorable or managedResources in the entry, or let another scheduler place the extender's pods"
                " (podSchedulerName of the chart)",
            )
        elif pods:
            yield ok("own-pods", f"{config.url_prefix}: the extender's own pods are placed even if no replica answers")
