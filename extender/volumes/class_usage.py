"""How much of each storage class a pod would take on each node, for the priority that looks at it.

Source: upstream VolumeBinding.Score.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from extender.framework.rules import Scores
from extender.model.quantity import units
from extender.table.labels import BoolColumn
from extender.volumes.placement import Binding, Placement, Provision
from extender.volumes.reach import NONE


class ClassUsage:
    """What the pod asks for and what there is of it, in bytes: int64[n]. `counts`: where the class counts: bool[n]."""

    def __init__(self, rows: int) -> None:
        self.requested: Scores = np.zeros(rows, np.int64)
        self.capacity: Scores = np.zeros(rows, np.int64)
        self.counts: BoolColumn = np.zeros(rows, np.bool_)

    def bind(self, binding: Binding) -> None:
        """Adds the claim, and the volume it is bound to."""
        here = binding.picked != NONE
        self.counts |= here
        self.requested += np.where(here, units(binding.claim.requested_storage), 0)
        self.capacity += binding.bytes

    def provision(self, provision: Provision, here: BoolColumn, left: Scores) -> None:
        """Adds the claim. All claims of the class are provisioned from one pool, which is not added up."""
        self.counts |= here
        self.requested += np.where(here, units(provision.claim.requested_storage), 0)
        self.capacity = np.where(here, left, self.capacity)


def usage_by_class(placement: Placement) -> Mapping[str, ClassUsage]:
    """Where any claim finds a volume only such claims count; elsewhere those that are provisioned from a known pool."""
    usage: defaultdict[str, ClassUsage] = defaultdict(lambda: ClassUsage(len(placement.rows)))
    found = np.zeros(len(placement.rows), np.bool_)
    for binding in placement.bindings:
        usage[binding.claim.class_name].bind(binding)
        found |= binding.picked != NONE
    for provision in placement.provisions:
        if provision.bytes_left is not None:
            here = provision.needed & ~found
            usage[provision.claim.class_name].provision(provision, here, provision.bytes_left)
    return usage
