"""Defines what a device policy is, and what is in common: weighted sums, and users' functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from extender.devices.policies.device_nodes import Bools, DeviceAsk, DeviceNodes, Ints

MAX_SCORE = 100
NEVER = -(2**62)
"""Less than any score."""
_MOST = 1e12
"""Larger numbers of a user's function could overflow in a weighted sum."""


class DevicePolicy(Protocol):
    """Scores nodes for a pod, and devices if it prefers some."""

    @property
    def name(self) -> str: ...

    @property
    def rescales(self) -> bool:
        """True if scores are stretched so that the worst and best of the nodes that fit get 0 and 100."""

    @property
    def repeats(self) -> bool:
        """True if equal nodes and asks score alike, so that a score can be kept until the node changes."""

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        """Returns int64[row], or int64[row, device] if devices of one node differ; more is better.

        A score by device counts only for a share. For whole devices, every column must be equal.
        """


@runtime_checkable
class BestPolicy(Protocol):
    """A policy that finds the highest score of each node's devices faster than by scoring every device."""

    def best(self, nodes: DeviceNodes, ask: DeviceAsk, fits: Bools) -> Ints:
        """Returns int64[row]: the highest score of a device that fits, bool[row, device]; one fits in each row."""


@dataclass(frozen=True, slots=True)
class UserPolicy:
    """A user's function as a policy; its scores are truncated to integers."""

    name: str
    function: Callable[[DeviceNodes, DeviceAsk], object]
    rescales: bool = False
    repeats: bool = True

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        answer = np.asarray(self.function(nodes.read_only(), ask))
        rows, devices = nodes.free.shape
        if answer.dtype.kind not in "biuf" or answer.shape not in ((rows,), (rows, devices)):
            raise TypeError(
                f"a device policy must return a number for each of {rows} nodes, or for each of their {devices}"
                f" devices, not {answer.dtype} of the shape {answer.shape}"
            )
        if not (np.abs(answer) <= _MOST).all():
            raise ValueError(f"a device policy must return numbers between -{_MOST:g} and {_MOST:g}")
        return answer.astype(np.int64)


def rescaled(scores: Ints, fits: Bools) -> Ints:
    """Returns scores stretched to 0..100 over the rows that fit; 100 for all if they are equal."""
    among = scores[fits]
    least, most = int(among.min()), int(among.max())
    if least == most:
        return np.full_like(scores, MAX_SCORE)
    stretched: Ints = (scores - least) * MAX_SCORE // (most - least)
    return stretched


@dataclass(frozen=True, slots=True)
class Weighted:
    """A policy and its weight in a sum."""

    policy: DevicePolicy
    weight: int = 1


def total(parts: Sequence[Weighted], scores: Sequence[Ints], fits: Bools) -> Ints:
    """Returns int64[row]: the weighted sum of each policy's scores, stretched where the policy says so."""
    result = np.zeros(len(fits), np.int64)
    for part, each in zip(parts, scores, strict=True):
        result += part.weight * (rescaled(each, fits) if part.policy.rescales else each)
    return result


def best_devices(nodes: DeviceNodes, fits: Bools, scores: Sequence[Ints], parts: Sequence[Weighted]) -> Ints:
    """Returns int64[row]: the device with the highest sum of scores among those that fit, bool[row, device].

    If no policy scores devices, this is the fullest. Of equals, it is the first.
    """
    by_device = [part.weight * each for part, each in zip(parts, scores, strict=True) if each.ndim == 2]
    best: Ints = np.where(fits, sum(by_device) if by_device else -nodes.free, NEVER).argmax(axis=1)
    return best
