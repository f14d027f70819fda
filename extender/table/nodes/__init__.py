"""Nodes as columns: resources, taints, labels, images and facts, by row.

In: Node objects and what pods request. Out: arrays that rules index by rows; `NodeColumns` is the way in.
"""

from __future__ import annotations

import warnings

_MOVED = ("CPU", "MEMORY", "EPHEMERAL_STORAGE", "PODS", "BUILT_IN", "NodeColumns")


def __getattr__(name: str) -> object:
    """Gives what stood here once, when this was a module (see runtime.moved)."""
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from extender.table.nodes import columns

    warnings.warn(f"extender.table.nodes.{name} has moved; import it from extender", DeprecationWarning, stacklevel=2)
    return getattr(columns, name)
