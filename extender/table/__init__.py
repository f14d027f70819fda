"""The cluster as columns."""

from extender.table.hypothetical_removals import HypotheticalRemovals
from extender.table.podinfo import PodInfo
from extender.table.pods.matches import PodCountQuery
from extender.table.table import Table

__all__ = ["HypotheticalRemovals", "PodCountQuery", "PodInfo", "Table"]
