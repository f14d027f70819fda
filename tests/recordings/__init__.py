"""Timelines of a real cluster: watch events and extender calls of the stock scheduler, in the order of arrival.

Made with kube-scheduler and kube-apiserver v1.37.1: `names` with `nodeCacheCapable: true`, `full` with `false`.
Calls are as they travelled, `managedFields` left out. The responder let everything through (all nodes feasible, scores
0, victims unchanged, binds done for real): a response here is a valid answer, not the best one. A bind is noted when it
was answered, so the watch event that confirms it may stand before it.

What happens: 9 nodes of several kinds, taints, a cordon, a relabelling, a node that comes late and goes, host ports,
spread, affinity, extended resources, a PodDisruptionBudget, preemption, a pod that can never fit, a gated pod.

`served` is what `extender serve --record` makes of it where the timeline of `names` comes to it: see
docs/record-and-replay.md.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Mode = Literal["names", "full"]


@dataclass(frozen=True)
class WatchEvent:
    """`resource` is the plural (pods, nodes, ...), `type` ADDED, MODIFIED or DELETED."""

    resource: str
    type: str
    object: dict[str, Any]


@dataclass(frozen=True)
class Call:
    """`verb` is filter, prioritize, preempt or bind; `request` and `response` are the JSON bodies."""

    verb: str
    request: dict[str, Any]
    response: Any


def calls_and_events(mode: Mode) -> Iterator[WatchEvent | Call]:
    """The timeline, in order."""
    with gzip.open(Path(__file__).parent / f"{mode}.jsonl.gz", "rt") as lines:
        for line in lines:
            entry = json.loads(line)
            if "watch" in entry:
                yield WatchEvent(entry["watch"], entry["event"]["type"], entry["event"]["object"])
            else:
                yield Call(entry["call"], entry["request"], entry["response"])
