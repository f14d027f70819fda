"""The cluster: reached, of a version that works, with the APIs that scheduling reads, its clock and its lease."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from extender.app.doctor.finding import Finding, fail, ok, warn
from extender.cluster.http.kube_client import KubeClient, error_of
from extender.errors import ClusterError, NotFound
from extender.model.kinds import KINDS

SUPPORTED_MINORS = range(35, 38)
"""The minor versions of Kubernetes 1 that the end-to-end tests run against."""
WAIT_SECONDS = 5.0
SKEW_WARN_SECONDS = 2.0
_GROUP = "scheduling.k8s.io"


def check_cluster(client: KubeClient, lease: str = "") -> Iterator[Finding]:
    """Yields what is found of the API server. `lease`: NAMESPACE/NAME of a lease that somebody should hold.

    Raises ClusterError where it does not answer.
    """
    before = time.time()
    version, date = _get(client, "/version")
    yield _version(str(version.get("gitVersion", "")), str(version.get("minor", "")))
    yield _clock(date, before, time.time())
    yield from _served(client)
    yield from _groups_of_pods(client)
    if lease:
        yield _lease(client, *lease.partition("/")[::2])


def _get(client: KubeClient, path: str) -> tuple[dict[str, Any], str]:
    with client.get(path, {}, WAIT_SECONDS) as response:
        body, date = response.read(), response.header(b"date")
    if response.status != 200:
        raise error_of(response.status, body)
    document = msgspec.json.decode(body)
    return (document if isinstance(document, dict) else {}), date


def _version(git_version: str, minor: str) -> Finding:
    number = int("".join(filter(str.isdigit, minor)) or -1)
    least, most = SUPPORTED_MINORS[0], SUPPORTED_MINORS[-1]
    if number in SUPPORTED_MINORS:
        return ok("version", f"Kubernetes {git_version}")
    return warn(
        "version",
        f"Kubernetes {git_version}: the extender is tested with 1.{least} to 1.{most}",
        "where its rules decide otherwise than kube-scheduler's, take the feature gates of that version in the policy",
    )


def _clock(date: str, before: float, after: float) -> Finding:
    try:
        skew_seconds = parsedate_to_datetime(date).timestamp() + 0.5 - (before + after) / 2
    except (TypeError, ValueError):
        return ok("clock", "the API server does not tell the time")
    if abs(skew_seconds) <= SKEW_WARN_SECONDS + (after - before):
        return ok("clock", "the clocks agree")
    ahead = "behind" if skew_seconds > 0 else "ahead of"
    return warn(
        "clock",
        f"this machine's clock is {abs(skew_seconds):.0f} s {ahead} the API server's",
        "synchronise both (chrony, systemd-timesyncd): ages, expiry and certificates are judged by them",
    )


def _served(client: KubeClient) -> Iterator[Finding]:
    missing = []
    for api_version in dict.fromkeys(kind.api_version for kind in KINDS.values()):
        plurals = {kind.plural for kind in KINDS.values() if kind.api_version == api_version}
        try:
            document, _ = _get(client, f"{'/apis' if '/' in api_version else '/api'}/{api_version}")
        except NotFound:
            document = {}
        served = {str(each.get("name")) for each in document.get("resources", ())}
        missing += [f"{plural} ({api_version})" for plural in sorted(plurals - served)]
    if missing:
        yield warn(
            "served-apis",
            f"the API server does not serve {', '.join(missing)}",
            "the extender takes it that there are none; if pods need them, switch them on (--runtime-config)",
        )
    else:
        yield ok("served-apis", f"all {len(KINDS)} kinds that scheduling reads are served")


def _groups_of_pods(client: KubeClient) -> Iterator[Finding]:
    try:
        document, _ = _get(client, f"/apis/{_GROUP}")
    except NotFound:
        return
    for version in document.get("versions", ()):
        resources, _ = _get(client, f"/apis/{version['groupVersion']}")
        names = {str(each.get("name")) for each in resources.get("resources", ())}
        if groups := names & {"workloads", "podgroups"}:
            yield warn(
                "pod-groups",
                f"{', '.join(sorted(groups))} ({version['groupVersion']}) are served",
                "leave pods with a spec.schedulingGroup to kube-scheduler: the extender refuses each, with a reason",
            )


def _lease(client: KubeClient, namespace: str, name: str) -> Finding:
    shown = f"lease {namespace}/{name}"
    try:
        document, _ = _get(client, f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
    except NotFound:
        return fail("lease", f"{shown} does not exist: nobody has led yet", "start a replica with --leader-elect")
    except ClusterError as error:
        return fail("lease", f"{shown} cannot be read: {error}", "grant get on leases in that namespace")
    spec = document.get("spec", {})
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if not holder or not renewed:
        return fail("lease", f"{shown} has no holder", "see whether a replica is ready: kubectl get pods")
    age_seconds = time.time() - datetime.fromisoformat(renewed).timestamp()
    if age_seconds > float(spec.get("leaseDurationSeconds") or 0):
        return fail(
            "lease",
            f"{shown} was renewed {age_seconds:.0f} s ago by {holder}: nobody leads",
            "see whether a replica is ready, and whether its account may update the lease",
        )
    return ok("lease", f"{holder} holds {shown}")
