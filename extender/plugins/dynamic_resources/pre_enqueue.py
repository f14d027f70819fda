"""Pods are not tried before their claims are made."""

from __future__ import annotations

from collections.abc import Callable

from extender.devices.claims import NAME, FindClaim, existing_claims
from extender.framework.status import Refusal
from extender.table import PodInfo


class ClaimsExist:
    """Keeps pods out of the active queue until every claim that they name is there (upstream PreEnqueue).

    Nothing is said of such a pod: no condition, no event. Who makes its claims writes its status at the same time.

    Args:
        applies_to: tells whether the pod's profile has the plugin.
    """

    name = NAME

    def __init__(self, find: FindClaim, applies_to: Callable[[PodInfo], bool]) -> None:
        self._find, self._applies_to = find, applies_to

    def admits(self, pod: PodInfo) -> bool:
        if not pod.pod.spec.resource_claims or not self._applies_to(pod):
            return True
        return not isinstance(existing_claims(pod.pod, self._find), Refusal)
