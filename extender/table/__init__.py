"""The cluster as columns."""

from extender.table.gone import Gone
from extender.table.matches import Question
from extender.table.podinfo import PodInfo
from extender.table.table import Table

__all__ = ["Gone", "PodInfo", "Question", "Table"]
