"""What can change in the cache, and how a table is told of it."""

from __future__ import annotations

from dataclasses import dataclass

from extender.cache.pod_states import PodState
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.table import PodInfo, Table

NODE, POD = Node.__name__, Pod.__name__

Change = tuple[str, str]
"""(kind, key) of an object that is no longer what it was; pods go by UID."""


@dataclass(slots=True)
class Placement:
    """A pod that counts on a node.

    Attributes:
        certain: False where the bind ended without an answer.
        expires_at: when the pod expires unless the watch confirms it, in monotonic seconds; None: never.
    """

    info: PodInfo
    node_name: str
    state: PodState
    certain: bool = True
    expires_at: float | None = None


Present = Object | Placement | PodInfo | None
"""What an object is at this moment; a pod is its placement, or if it has none what is known of it."""


def apply(table: Table, change: Change, present: Present) -> None:
    """Makes the table show what the object is now."""
    kind, key = change
    if kind == POD:
        _apply_pod(table, key, present)
    elif kind == NODE:
        table.set_node(present) if isinstance(present, Node) else table.remove_node(key)
    elif isinstance(present, Object):
        table.set_object(kind, present)
    else:
        table.remove_object(kind, key)


def _apply_pod(table: Table, uid: str, present: Present) -> None:
    if isinstance(present, Placement):
        table.place(present.info, present.node_name)
    else:
        table.take_away(uid)
    if isinstance(present, PodInfo) and present.pod.status.nominated_node_name:
        table.nominate(present, present.pod.status.nominated_node_name)
    else:
        table.withdraw(uid)
