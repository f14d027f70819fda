"""Checks that the extender's own pods are placed while no replica answers, because they could never start otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

import msgspec

from extender.app.doctor.finding import Finding, ok, warn
from extender.cluster.http.kube_client import KubeClient
from extender.cluster.watch.api_objects import decoders
from extender.model.kinds import KINDS
from extender.model.pod import Pod
from extender.plugins.registry import DEFAULT_SCHEDULER
from extender.policy.policy import Policy


def own_pods(client: KubeClient, account: str) -> list[Pod]:
    """Returns a pod as each Deployment of the service account creates it. Raises ClusterError if they cannot be listed.

    Deployments are read, because they exist even if none of their pods does.
    """
    namespace, _, name = account.partition("/")
    path = f"/apis/apps/v1/namespaces/{quote(namespace, '')}/deployments"
    templates = [each["spec"]["template"] for each in client.call_for(msgspec.json.decode, "GET", path, b"")["items"]]
    decode = decoders(KINDS[Pod.__name__])[1]
    pods = [decode(msgspec.Raw(msgspec.json.encode(each))) for each in templates if _account(each) == name]
    return [pod for pod in pods if isinstance(pod, Pod)]


def _account(template: dict[str, dict[str, str]]) -> str:
    return template["spec"].get("serviceAccountName", "default")


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
