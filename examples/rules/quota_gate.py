"""Holds back the pods of a namespace until its quota has been approved: until a TeamQuota `default` exists there.

The policy names the kind: `watch: [{apiVersion: example.com/v1, kind: TeamQuota}]`.
"""

from extender import Handle, Pod, pre_enqueue


@pre_enqueue(woken_by={"CustomObject": "Add|Update"})
def after_its_quota(pod: Pod, *, handle: Handle, kind: str = "TeamQuota") -> str | None:
    """Lets the pod in once the quota is approved."""
    quota = handle.objects.get(kind, f"{pod.namespace}/default")
    if quota is None:
        return f"waiting for a {kind} in the namespace"
    return None if quota.content.get("spec", {}).get("approved") else f"waiting until the {kind} is approved"
