"""Takes a pod out of its group, to judge it alone. The pod keeps the claims that it shares with the group."""

from __future__ import annotations

from extender.devices.pod_claims import generated_name, sharing_group
from extender.model.pod import Pod, PodResourceClaim
from extender.table import Table


def without_group(pod: Pod, table: Table) -> Pod:
    """Returns the pod without its group. It keeps the claims that it shares with the group."""
    group = sharing_group(pod, table)
    if group is None:
        return pod.with_spec(scheduling_group=None)
    shared, statuses = group.spec.resource_claims or (), group.status.resource_claim_statuses
    claims = [
        PodResourceClaim(named.name, resource_claim_name=name)
        if named in shared and (name := generated_name(statuses, named.name)) is not None
        else named
        for named in pod.spec.resource_claims or ()
    ]
    return pod.with_spec(scheduling_group=None, resource_claims=claims or None)
