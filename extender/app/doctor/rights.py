"""The rights of an account, beside those of the shipped ClusterRoles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from extender.app.doctor.finding import Finding, fail, ok, warn
from extender.cluster.http.kube_client import KubeClient
from extender.model.kinds import KINDS

SERVE, SCHEDULE, SERVE_PREEMPTING = "serve", "schedule", "serve --preempt-for-rules"
_AT_ONCE = 8


class Right(NamedTuple):
    """A verb on a resource of a group; `resource` may have a subresource, as pods/binding."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}"


def _rights(group: str, resource: str, *verbs: str) -> list[Right]:
    return [Right(group, resource, verb) for verb in verbs]


_LEASES = _rights("coordination.k8s.io", "leases", "create", "get", "update")
_READ = [
    right
    for kind in KINDS.values()
    for right in _rights(kind.api_version.rpartition("/")[0], kind.plural, "list", "watch")
]
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


class _Attributes(msgspec.Struct):
    group: str
    resource: str
    subresource: str
    verb: str
    namespace: str = ""


class _Spec(msgspec.Struct, rename="camel", omit_defaults=True):
    resource_attributes: _Attributes
    user: str = ""
    groups: list[str] = []


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    spec: _Spec


class _Answer(msgspec.Struct):
    status: _Status


_DECODE = msgspec.json.Decoder(_Answer).decode


def check_rights(client: KubeClient, mode: str, account: str, lease_namespace: str) -> Iterator[Finding]:
    """Yields what the account lacks and what it has beyond need.

    Args:
        mode: SERVE, SERVE_PREEMPTING or SCHEDULE.
        account: NAMESPACE/NAME of a service account; empty: whoever the client speaks for.
        lease_namespace: the namespace of the lease; empty: there is none.
    """
    who = f"service account {account}" if account else "this account"
    wanted = [(right, "") for right in NEEDED[mode]]
    wanted += [(right, lease_namespace) for right in _LEASES if lease_namespace]
    missing = _refused(client, wanted, account)
    if missing:
        verbs: dict[str, list[str]] = defaultdict(list)
        for right in missing:
            verbs[f"{right.resource}{'.' if right.group else ''}{right.group}"].append(right.verb)
        listed = "; ".join(f"{', '.join(each)} {resource}" for resource, each in verbs.items())
        yield fail(
            "rights",
            f"{who} may not {listed}",
            f"apply the ClusterRole of `extender {mode}` (chart or manifests) and bind it to {who}",
        )
    else:
        yield ok("rights", f"{who} may do all {len(wanted)} things that `extender {mode}` does")
    extra = [right for right in _MORE_THAN_NEEDED if right not in _refused(client, [(right, "")], account)]
    if extra:
        yield warn(
            "too-many-rights",
            f"{who} may also {', '.join(map(str, extra))}",
            "run the extender under the shipped account; check that one with --account NAMESPACE/NAME",
        )


def _refused(client: KubeClient, rights: Sequence[tuple[Right, str]], account: str) -> list[Right]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        allowed = list(pool.map(lambda each: _may(client, each[0], each[1], account), rights))
    return [right for (right, _), yes in zip(rights, allowed, strict=True) if not yes]


def _may(client: KubeClient, right: Right, namespace: str, account: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    spec = _Spec(_Attributes(right.group, resource, subresource, right.verb, namespace))
    kind = "SelfSubjectAccessReview"
    if account:
        owner, _, name = account.partition("/")
        kind, spec.user = "SubjectAccessReview", f"system:serviceaccount:{owner}:{name}"
        spec.groups = ["system:serviceaccounts", f"system:serviceaccounts:{owner}", "system:authenticated"]
    review = msgspec.json.encode(_Review("authorization.k8s.io/v1", kind, spec))
    path = f"/apis/authorization.k8s.io/v1/{kind.lower()}s"
    answer = client.call_for(_DECODE, "POST", path, review)
    return answer.status.allowed
