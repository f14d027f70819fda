"""CSINodes as columns: the drivers of each node, the volumes each can attach, the migrated plugins."""

from __future__ import annotations

import numpy as np

from extender.model.volumes.storage import CSINode
from extender.table.journal import TOPOLOGY, Cursor, Journal
from extender.table.labels import BoolColumn, IntColumn
from extender.table.nodes.columns import NodeColumns
from extender.table.objects import Objects

NO_LIMIT = np.iinfo(np.int64).max


class CSINodes:
    """Columns over node rows, brought up to date by the next reader."""

    def __init__(self, nodes: NodeColumns, objects: Objects, journal: Journal) -> None:
        self._nodes, self._objects = nodes, objects
        self._changed_names = Cursor(journal, TOPOLOGY, CSINode.__name__)
        self._known = np.zeros(0, np.bool_)
        self._limited = np.zeros(0, np.bool_)
        self._limits: dict[str, IntColumn] = {}
        self._drivers: dict[str, BoolColumn] = {}
        self._migrated: dict[str, BoolColumn] = {}
        self._row_of: dict[str, int] = {}

    def known(self) -> BoolColumn:
        """Tells the nodes with a CSINode: bool[row]."""
        self._refresh()
        return self._known

    def limited(self) -> BoolColumn:
        """Tells the nodes with a limit for any driver: bool[row]."""
        self._refresh()
        return self._limited

    def limit(self, driver: str) -> IntColumn:
        """The number of volumes of the driver that a node can have, or NO_LIMIT: int64[row]."""
        self._refresh()
        return self._limits.get(driver, np.full(len(self._known), NO_LIMIT))

    def has_driver(self, driver: str) -> BoolColumn:
        """Tells the nodes where the driver is installed: bool[row]."""
        self._refresh()
        return self._drivers.get(driver, np.zeros(len(self._known), np.bool_))

    def migrated(self, plugin: str) -> BoolColumn:
        """Tells the nodes that leave the in-tree plugin's volumes to its CSI driver: bool[row]."""
        self._refresh()
        return self._migrated.get(plugin, np.zeros(len(self._known), np.bool_))

    def _refresh(self) -> None:
        if len(self._known) != self._nodes.capacity:
            self._grow(self._nodes.capacity)
        names = self._changed_names.read()
        changed = {*self._row_of, *self._objects.all(CSINode)} if names is None else set(names)
        for name in changed:
            if name in self._row_of:
                self._clear(self._row_of.pop(name))
        for name in changed:
            node, row = self._objects.get(CSINode, name), self._nodes.row_of.get(name)
            if node is not None and row is not None:
                self._write(node, row)

    def _write(self, node: CSINode, row: int) -> None:
        self._row_of[node.name] = row
        self._known[row] = True
        for driver in node.drivers:
            self._flags(self._drivers, driver.name)[row] = True
            if driver.allocatable is not None and driver.allocatable.count is not None:
                self._limited[row] = True
                self._limits_of(driver.name)[row] = driver.allocatable.count
        for plugin in node.migrated_plugins:
            self._flags(self._migrated, plugin)[row] = True

    def _clear(self, row: int) -> None:
        for flags in (self._known, self._limited, *self._drivers.values(), *self._migrated.values()):
            flags[row] = False
        for limits in self._limits.values():
            limits[row] = NO_LIMIT

    def _limits_of(self, driver: str) -> IntColumn:
        if driver not in self._limits:
            self._limits[driver] = np.full(len(self._known), NO_LIMIT)
        return self._limits[driver]

    def _flags(self, columns: dict[str, BoolColumn], key: str) -> BoolColumn:
        if key not in columns:
            columns[key] = np.zeros(len(self._known), np.bool_)
        return columns[key]

    def _grow(self, capacity: int) -> None:
        more = (0, capacity - len(self._known))
        self._known, self._limited = np.pad(self._known, more), np.pad(self._limited, more)
        for columns in (self._drivers, self._migrated):
            columns.update({key: np.pad(flags, more) for key, flags in columns.items()})
        self._limits = {key: np.pad(limits, more, constant_values=NO_LIMIT) for key, limits in self._limits.items()}
