"""VolumeBinding: a pod's claims must be bound, or bindable, to volumes that the node reaches.

Source: upstream plugin volumebinding.
"""

from __future__ import annotations

from typing import Literal

from extender.framework.plugin import FILTER, PRE_FILTER, PRE_SCORE, SCORE, Arguments, Plugin
from extender.framework.schema import NonNegative, OptionalShape, points
from extender.plugins.volume_binding.hints import INTERESTS
from extender.plugins.volume_binding.predicate import VolumeBindingFilter
from extender.plugins.volume_binding.priority import LEAST_USED, VolumeBindingScore
from extender.volumes.claims import NAME


class VolumeBindingArgs(Arguments):
    kind: Literal["VolumeBindingArgs"] = "VolumeBindingArgs"
    bind_timeout_seconds: NonNegative = 600
    """The time that extender schedule waits for volumes to be bound."""
    shape: OptionalShape = ()
    """Points of the line from the share of a volume that is asked for to the score; none: emptier storage is better."""


PLUGIN = Plugin(
    NAME,
    VolumeBindingArgs,
    lambda args: VolumeBindingFilter(args.bind_timeout_seconds),
    lambda args: VolumeBindingScore(points(args.shape) or LEAST_USED),
    points=frozenset((PRE_SCORE, "reserve", "preBind")),
    needs=((FILTER, PRE_FILTER), (SCORE, PRE_FILTER)),
    scores_filtered=True,
    interests=INTERESTS,
)
