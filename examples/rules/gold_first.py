"""Tries pods with the label `example.com/tier: gold` first, whatever their priority; then silver, then the rest."""

from extender import Pod, queue_sort

TIER = "example.com/tier"
ORDER = ("gold", "silver")


@queue_sort
def gold_first(pod: Pod) -> int:
    """Returns 0 for gold, 1 for silver, and 2 for other pods; pods with equal numbers are sorted by priority."""
    tier = pod.labels.get(TIER)
    return ORDER.index(tier) if tier in ORDER else len(ORDER)
