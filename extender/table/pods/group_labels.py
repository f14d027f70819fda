"""Evaluates selectors over all groups at once. A group is the namespace and labels that some pods share.

Each group has a slot. The slot is stored under the group's namespace, its keys and its (key, value) pairs. So a
requirement reads only the groups that have its key or pair, and a selector like `key Exists` or `NotIn` over 20,000
groups is one NumPy operation.

A group with very many labels is not stored under them, because that would take 100 times as long as adding its pod.
Selectors are evaluated on such groups one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from extender.model.selectors import Requirement, Selector
from extender.table.filing import Filing
from extender.table.labels import BoolColumn, Pair, index_pairs
from extender.table.podinfo import Group

_FIRST_CAPACITY = 64
_MAX_FILED_LABELS = 256


class GroupLabels:
    """Stores the Groups (namespace and labels) that have pods, and finds those that match a selector.

    Attributes:
        capacity: the length of the arrays that `matching` returns.
    """

    def __init__(self) -> None:
        self.capacity = _FIRST_CAPACITY
        self._groups: dict[int, Group] = {}
        self._taken = np.zeros(_FIRST_CAPACITY, np.bool_)
        self._by_namespace: Filing[str, int] = Filing()
        self._by_key: Filing[str, int] = Filing()
        self._by_pair: Filing[Pair, int] = Filing()
        self._unfiled: dict[int, Group] = {}

    def add(self, slot: int, group: Group) -> None:
        while slot >= self.capacity:
            self._taken = np.pad(self._taken, (0, self.capacity))
            self.capacity *= 2
        self._groups[slot] = group
        self._taken[slot] = True
        self._by_namespace.add(group.namespace, slot)
        if len(group.labels) > _MAX_FILED_LABELS:
            self._unfiled[slot] = group
            return
        for pair in group.labels:
            self._by_key.add(pair[0], slot)
            self._by_pair.add(pair, slot)

    def remove(self, slot: int) -> None:
        group = self._groups.pop(slot)
        self._taken[slot] = False
        self._by_namespace.remove(group.namespace, slot)
        if self._unfiled.pop(slot, None) is not None:
            return
        for pair in group.labels:
            self._by_key.remove(pair[0], slot)
            self._by_pair.remove(pair, slot)

    def group(self, slot: int) -> Group:
        return self._groups[slot]

    def candidates(self, selector: Selector) -> Collection[Group]:
        """Returns all groups that match the selector, and possibly others, without duplicates."""
        pairs = index_pairs(selector)
        if pairs is not None:
            filed = [self._groups[slot] for pair in pairs for slot in self._by_pair.get(pair)]
            return [*filed, *self._unfiled.values()]
        keys = [requirement.key for requirement in selector.requirements if requirement.operator == "Exists"]
        having = min((self._by_key.get(key) for key in keys), key=len, default=None)
        if having is None:
            return self._groups.values()
        return [*(self._groups[slot] for slot in having), *self._unfiled.values()]

    def matching(self, namespaces: Collection[str] | None, selector: Selector) -> BoolColumn:
        """Returns bool[capacity]: True for the slots of groups in `namespaces` that match the selector.

        `namespaces`: None means all namespaces.
        """
        if selector.nothing:
            return np.zeros(self.capacity, np.bool_)
        mask = self._taken.copy()
        for requirement in selector.requirements:
            self._require(requirement, mask)
        for slot, group in self._unfiled.items():
            mask[slot] = selector.matches(group.mapping)
        if namespaces is not None:
            mask &= self._mask(self._by_namespace.get(namespace) for namespace in namespaces)
        return mask

    def _require(self, requirement: Requirement, mask: BoolColumn) -> None:
        key = requirement.key
        having = [self._by_pair.get((key, value)) for value in requirement.values]
        match requirement.operator:
            case "In":
                mask &= self._mask(having)
            case "Exists":
                mask &= self._mask((self._by_key.get(key),))
            case "NotIn":
                mask &= ~self._mask(having)
            case "DoesNotExist":
                mask &= ~self._mask((self._by_key.get(key),))
            case _:
                # Gt and Lt need no index, because selectors for pods cannot contain them.
                for slot in np.flatnonzero(mask).tolist():
                    mask[slot] = requirement.matches(self._groups[slot].mapping)

    def _mask(self, slots: Iterable[Collection[int]]) -> BoolColumn:
        mask = np.zeros(self.capacity, np.bool_)
        for filed in slots:
            if filed:
                mask[np.fromiter(filed, np.intp, len(filed))] = True
        return mask
