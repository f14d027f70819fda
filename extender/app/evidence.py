"""Finds out from the cache if writes whose outcome is unknown have taken effect; see `runtime.unsettled`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress

from extender.cache.cache import Cache
from extender.cache.pod_states import PodState
from extender.errors import IllegalTransition
from extender.model.devices import ResourceClaim
from extender.runtime.ports import Binding

_log = logging.getLogger(__name__)


class CacheEvidence:
    """Finds out from the cache if a write has taken effect. It implements unsettled.Evidence."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def nothing_waits(self) -> bool:
        """Returns True if all pods have nodes and all claims have devices, so a late write could change nothing.

        Only what the watch shows counts. A pod that is assumed here may wait, and another process may be binding it.
        """
        claims = self._cache.objects(ResourceClaim.__name__).values()
        if any(isinstance(claim, ResourceClaim) and claim.allocation is None for claim in claims):
            return False
        return all(pod.state is PodState.ADDED for pod in self._cache.pods().values())

    def shows(self, binding: Binding) -> bool:
        """Returns True if the watch has shown that the pod is on a node, or that it was deleted."""
        placement = self._cache.placement(binding.uid)
        if placement is None:
            return self._cache.find_pod(binding.uid, binding.key) is None
        return placement.state is PodState.ADDED


def assume_unsettled(cache: Cache, bindings: Iterable[Binding]) -> None:
    """Assumes these pods in the cache, because an earlier worker may have bound them.

    They stay assumed until the watch shows them on their nodes, or they expire, whether their nodes exist or not.
    """
    for binding in bindings:
        info = cache.find_pod(binding.uid, binding.key)
        if info is not None and cache.placement(binding.uid) is None:
            with suppress(IllegalTransition):  # the watch may have shown the pod on a node just now
                cache.keep_place(info, binding.node, binding.annotations)
                _log.warning(
                    "pod assumed, an earlier worker may have bound it pod=%s node=%s", binding.key, binding.node
                )
