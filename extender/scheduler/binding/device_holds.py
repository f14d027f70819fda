"""Marks devices as taken in the cache, from the decision until the claim is written or given up.

Members of a pod group may share a claim, and each of them may be the first to write it. So its devices are free again
only if none of these members may still write the claim.
"""

from __future__ import annotations

from threading import Lock

from extender.cache.cache import Cache
from extender.model.devices.claims import PendingClaim, ResourceClaim

PENDING = PendingClaim.__name__


class DeviceHolds:
    """Records which pods may write each claim whose devices are chosen but not yet written. Thread-safe."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._lock = Lock()
        # Key of a PendingClaim -> the UIDs of the pods that hold it.
        self._holders: dict[str, set[str]] = {}

    def take(self, pending: PendingClaim, uid: str) -> None:
        """Makes the claim's devices count as taken. Raises Outdated if another pod has taken the claim."""
        with self._lock:
            self._cache.assume_object(pending)
            self._holders[pending.key] = {uid}

    def join(self, pending: PendingClaim, uid: str) -> bool:
        """Adds the pod to those that may write the claim; returns False instead if the claim now has other devices."""
        with self._lock:
            current = self._cache.effective(PENDING, pending.key)
            if not isinstance(current, PendingClaim) or current.uid != pending.uid:
                return False
            if current.allocation != pending.allocation:
                return False
            self._holders.setdefault(pending.key, set()).add(uid)
            return True

    def confirm(self, key: str, uid: str, written: ResourceClaim) -> None:
        """Removes the pod from those that may write the claim. `written`: the claim from the API server."""
        with self._lock:
            is_last = self._remove(key, uid)
            self._cache.confirm_object(written, instead_of=(PENDING, key) if is_last else None)

    def leave(self, key: str, uid: str) -> None:
        """Removes the pod from those that may write the claim. If none is left, the claim's devices are free again."""
        with self._lock:
            if self._remove(key, uid):
                self._cache.restore_object(PENDING, key)

    def _remove(self, key: str, uid: str) -> bool:
        """Removes the pod from those that may write the claim; returns True if none is left. Requires the lock."""
        holders = self._holders.pop(key, set()) - {uid}
        if holders:
            self._holders[key] = holders
        return not holders
