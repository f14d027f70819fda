"""Makes temporary changes to a table, and undoes them in reverse order."""

from __future__ import annotations

from collections.abc import Callable

from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.table.podinfo import PodInfo
from extender.table.table import Table


class Trial:
    """A stack of changes to a table, which can be reverted.

    A pod that it places counts exactly like a real pod. Each change is registered before it is made, so `revert` also
    restores the table after a change that raised an exception. While a trial has changes, nothing else may change the
    table.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._undo: list[Callable[[], None]] = []

    def mark(self) -> int:
        """Returns the position to which `revert` can go back."""
        return len(self._undo)

    def revert(self, mark: int = 0) -> None:
        """Undoes the changes made after the mark, by default all. If undoing one fails, the others are still undone."""
        try:
            while len(self._undo) > mark:
                self._undo.pop()()
        except BaseException:
            self.revert(mark)
            raise

    def place(self, info: PodInfo, node_name: str) -> None:
        """Places the pod on the node, and ends its nomination. A pod that is on another node is moved."""
        self.take_away(info.uid)
        self._undo.append(lambda: self.table.take_away(info.uid))
        self.table.place(info, node_name)

    def take_away(self, uid: str) -> None:
        """Removes the pod from its node and ends its nomination; an unknown UID is ignored."""
        self.withdraw(uid)
        pods = self.table.pods
        if (slot := pods.slot_of.get(uid)) is not None:
            info, node_name = pods.info(slot), self.table.nodes.names[pods.row[slot]]
            self._undo.append(lambda: self.table.place(info, node_name))
            self.table.take_away(uid)

    def withdraw(self, uid: str) -> None:
        """Ends the pod's nomination, if it has one."""
        if (nomination := self.table.nominated.of(uid)) is not None:
            self._undo.append(lambda: self.table.nominate(*nomination))
            self.table.withdraw(uid)

    def set_object(self, obj: Object) -> None:
        """Adds or replaces an object of any kind; a pod is placed on its node."""
        if isinstance(obj, Pod):
            self.place(PodInfo(obj), obj.node_name)
        elif isinstance(obj, Node):
            self._set_node(obj)
        else:
            self._set_other(obj)

    def _set_node(self, node: Node) -> None:
        table = self.table
        if table.nodes.has(node.name):
            before = table.nodes.node(table.nodes.row_of[node.name])
            self._undo.append(lambda: table.set_node(before))
        else:
            self._undo.append(lambda: table.remove_node(node.name))
        table.set_node(node)

    def _set_other(self, obj: Object) -> None:
        table, kind = self.table, type(obj).__name__
        before = table.objects.get(type(obj), obj.key)
        if before is None:
            self._undo.append(lambda: table.remove_object(kind, obj.key))
        else:
            self._undo.append(lambda: table.set_object(kind, before))
        table.set_object(kind, obj)
