"""The other extenders that `extender schedule` asks: each over HTTP, those that prioritize side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from extender.cache.cache import Cache
from extender.cluster.http.http_extender import HttpExtender
from extender.model.extenders import ExtenderConfig
from extender.model.node import Node
from extender.model.pod import Pod
from extender.scheduler.extenders import Extender, Extenders, in_turn


def extenders_of(configs: Sequence[ExtenderConfig]) -> Extenders:
    """Returns the extenders, each over HTTP. Raises ConfigurationError where certificates cannot be read."""
    extenders = [Extender(config, HttpExtender(config)) for config in configs]
    asked = sum(bool(config.prioritize_verb) for config in configs)
    side_by_side = ThreadPoolExecutor(asked, "prioritize").map if asked > 1 else in_turn
    return Extenders(extenders, side_by_side)


def sent_whole(configs: Iterable[ExtenderConfig]) -> frozenset[str]:
    """Returns the kinds of objects that the extenders are sent whole, and not by name."""
    by_name = [config.node_cache_capable for config in configs]
    kinds = [Pod, Node] if not all(by_name) else [Pod] if by_name else []
    return frozenset(kind.__name__ for kind in kinds)


def assumed_pod_of(cache: Cache) -> Callable[[str], Pod | None]:
    """Returns what finds an assumed pod by its UID."""

    def pod_of(uid: str) -> Pod | None:
        placement = cache.placement(uid)
        return placement.info.pod if placement else None

    return pod_of
