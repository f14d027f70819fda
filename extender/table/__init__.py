"""The cluster as columns, one row a node and one slot a pod, and one journal of every change in them.

In: nodes, pods, nominations and other objects, as the cache or a snapshot has them. Out: NumPy columns and sets that
rules read, kept up to date in place; and the journal, by which whoever derives more from a table follows it. A rule is
plain Python that runs once per distinct value, and NumPy gathers the verdict to the rows. Begin with `table.Table`,
then `journal`, then `nodes.columns`.
"""

from extender.table.hypothetical_removals import HypotheticalRemovals
from extender.table.podinfo import PodInfo
from extender.table.pods.matches import PodCountQuery
from extender.table.table import Table

__all__ = ["HypotheticalRemovals", "PodCountQuery", "PodInfo", "Table"]
