"""ImageLocality: prefers nodes that have the pod's images. Source: upstream plugin imagelocality."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.plugin import Arguments, Plugin
from extender.framework.rules import MAX_SCORE, PerNode, RowScorer, Scorer, Scores
from extender.table import PodInfo, Table
from extender.table.labels import Rows
from extender.table.node_columns import NodeColumns

NAME = "ImageLocality"
MIB = 1024 * 1024
SMALLEST_BYTES = 23 * MIB
LARGEST_BYTES_PER_IMAGE = 1000 * MIB


@dataclass(frozen=True, slots=True)
class ImageLocality(PerNode):
    """Prefers nodes that already have large images of the pod. An image counts more if more nodes have it."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        return RowScorer(lambda rows: _scores(pod.images, table.nodes, rows))


def _scores(images: tuple[str, ...], nodes: NodeColumns, rows: Rows) -> Scores:
    present = [image for name in images if (image := nodes.images.get(name))]
    if not present:
        return np.zeros(len(rows), np.int64)
    bytes_by_node = np.zeros(nodes.capacity, np.int64)
    for image in present:
        spread = len(image.rows) / len(nodes.rows)
        bytes_by_node[list(image.rows)] += int(image.size_bytes * spread)
    largest = LARGEST_BYTES_PER_IMAGE * len(images)
    clamped = bytes_by_node[rows].clip(SMALLEST_BYTES, max(largest, SMALLEST_BYTES))
    return MAX_SCORE * (clamped - SMALLEST_BYTES) // (largest - SMALLEST_BYTES)


PLUGIN = Plugin(NAME, Arguments, priority=lambda _: ImageLocality())
