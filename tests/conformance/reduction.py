"""A failing case made as small as it can be, so that a person sees what it is about."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tests.builders import Object

# What the API requires: without it the case would fail for other reasons.
_IDENTITY = {"apiVersion", "kind", "name", "namespace", "uid", "metadata", "cluster", "items", "pod"}
_REQUIRED = {"containers", "maxSkew", "topologyKey", "whenUnsatisfiable", "key", "operator", "weight", "status"}
_KEPT = _IDENTITY | _REQUIRED


def reduced(case: Object, fails: Callable[[Object], bool]) -> Object:
    """The case without every object, field and element that `fails` does not need."""
    smaller = copy.deepcopy(case)
    assert fails(smaller)
    while _cut(smaller, lambda: fails(smaller)):
        pass
    return smaller


def _cut(part: Any, fails: Callable[[], bool]) -> bool:
    """Takes away from `part`, in place, what can go; whether anything could."""
    cut = False
    for key in list(part) if isinstance(part, dict) else range(len(part) - 1, -1, -1):
        removed = part.pop(key) if key not in _KEPT else part[key]
        if key not in _KEPT and fails():
            cut = True
            continue
        if key not in _KEPT:
            part.insert(key, removed) if isinstance(part, list) else part.update({key: removed})
        if isinstance(removed, dict | list):
            cut |= _cut(removed, fails)
    return cut
