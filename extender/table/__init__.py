"""Stores the cluster in columns (a row for each node, a slot for each pod) and a journal of all changes.

In: nodes, pods, nominations and other objects, from the cache or a snapshot. Out: NumPy columns and sets that rules
read, updated in place, and the journal, which everything derived from a table reads. A rule is plain Python that runs
once for each distinct value, and NumPy copies the result to the rows. Start reading at `table.Table`, then `journal`,
then `nodes.columns`.
"""

from extender.table.hypothetical_removals import HypotheticalRemovals
from extender.table.node_info import NodeInfo, NodePods
from extender.table.podinfo import PodInfo
from extender.table.pods.matches import PodCountQuery
from extender.table.table import Table

__all__ = ["HypotheticalRemovals", "NodeInfo", "NodePods", "PodCountQuery", "PodInfo", "Table"]
