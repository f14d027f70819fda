"""Rules that stand for the plugins of Kubernetes' integration tests; `extender schedule` loads a copy of this file."""

import time
from collections.abc import Mapping
from pathlib import Path

from extender import Node, NodeInfo, Pod, post_filter, pre_bind, predicate, priority

WAIT_SECONDS = 60


@priority
def preset(pod: Pod, node: Node, *, scores: dict[str, int]) -> int:
    """Gives each node the score that the case names."""
    return scores.get(node.name, 0)


@predicate(sees_pods=True)
def slots(pod: Pod, node: NodeInfo, *, places: int) -> bool:
    """Lets this many pods with the label on a node; upstream counts them in a plugin of Reserve."""
    if pod.labels.get("test-plugin") != "true":
        return True
    taken = node.pods.count({"test-plugin": "true"}) + node.pods.count({"resource-taken": "true"})
    return taken < places


@predicate
def interrupted(pod: Pod, node: Node, *, when: str, folder: str) -> bool:
    """Waits once, while this pod is filtered, until the test has created another pod."""
    reached = Path(folder) / "reached"
    if pod.name == when and not reached.exists():
        reached.touch()
        ends_at = time.monotonic() + WAIT_SECONDS
        while not (Path(folder) / "created").exists() and time.monotonic() < ends_at:
            time.sleep(0.05)
    return True


@pre_bind
def refused_once(pod: Pod, node: Node, *, pod_name: str, folder: str) -> str | None:
    """Refuses the first bind of this pod."""
    refused = Path(folder) / "refused"
    if pod.name != pod_name or refused.exists():
        return None
    refused.touch()
    return "mock binding failure"


@post_filter
def counted(pod: Pod, refused: Mapping[str, str], *, folder: str) -> None:
    """Notes each call in a file."""
    with (Path(folder) / "post-filter-calls").open("a") as calls:
        calls.write(f"{pod.name}\n")
