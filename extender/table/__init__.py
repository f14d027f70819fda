"""Stores the cluster in columns (one row per node, one slot per pod), and a journal of all changes.

The cache or a snapshot writes nodes, pods, nominations and other objects to a table. Rules read its NumPy columns and
sets, which are updated in place. Everything that is derived from a table reads the journal to stay up to date. A rule
about something that many nodes share, such as taints, runs in plain Python once for each distinct value; NumPy then
copies the result to the rows with that value. Start reading at `table.Table`, then `journal`, then `node_columns`.
"""

from extender.table.hypothetical_removals import HypotheticalRemovals
from extender.table.matches import PodCountQuery
from extender.table.node_info import NodeInfo, NodePods
from extender.table.podinfo import PodInfo
from extender.table.table import Table, Trial

__all__ = ["HypotheticalRemovals", "NodeInfo", "NodePods", "PodCountQuery", "PodInfo", "Table", "Trial"]
