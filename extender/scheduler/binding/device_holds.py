"""Marks devices as taken in the cache, from the decision until the claim is written or given up.

Members of a pod group may share a claim, and each of them may be the first to write it. The devices become free again
when the last of these members gives up.
"""

from __future__ import annotations

from threading import Lock

from extender.cache.cache import Cache
from extender.model.devices import PendingClaim, ResourceClaim

PENDING = PendingClaim.__name__


class DeviceHolds:
    """Keeps a claim's devices taken while a pod holds the claim. Thread-safe.

    A pod holds a claim from the choice of its devices until `confirm` or `leave` is called for the pod.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._lock = Lock()
        # Key of a PendingClaim -> the UIDs of the pods that hold it.
        self._holders: dict[str, set[str]] = {}

    def take(self, pending: PendingClaim, uid: str) -> None:
        """Marks the claim's devices as taken, with the pod as the only holder.

        Raises Outdated if another pod has taken the claim.
        """
        with self._lock:
            self._cache.assume_object(pending)
            self._holders[pending.key] = {uid}

    def join(self, pending: PendingClaim, uid: str) -> bool:
        """Adds the pod to the holders; returns False if the claim is no longer held with the same devices."""
        with self._lock:
            current = self._cache.effective(PENDING, pending.key)
            if not isinstance(current, PendingClaim) or current.uid != pending.uid:
                return False
            if current.allocation != pending.allocation:
                return False
            self._holders.setdefault(pending.key, set()).add(uid)
            return True

    def confirm(self, key: str, uid: str, written: ResourceClaim) -> None:
        """Removes the pod from the holders, and stores the claim as the API server returned it (`written`)."""
        with self._lock:
            is_last = self._remove(key, uid)
            self._cache.confirm_object(written, instead_of=(PENDING, key) if is_last else None)

    def leave(self, key: str, uid: str) -> None:
        """Removes the pod from the holders. If no holder is left, the claim's devices are free again."""
        with self._lock:
            if self._remove(key, uid):
                self._cache.restore_object(PENDING, key)

    def _remove(self, key: str, uid: str) -> bool:
        """Removes the pod from the holders; returns True if no holder is left. The caller has the lock."""
        holders = self._holders.pop(key, set()) - {uid}
        if holders:
            self._holders[key] = holders
        return not holders
