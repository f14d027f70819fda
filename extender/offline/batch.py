"""Many decisions: one case a line in, one answer a line out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from extender.errors import ExtenderError
from extender.framework.profile import Profiles
from extender.offline.cluster import Cluster
from extender.policy.loading import read as policy

Answer = dict[str, Any]


class Items(msgspec.Struct):
    """A v1 List."""

    items: list[dict[str, Any]] | None = None


class Case(msgspec.Struct):
    """A cluster, a pod to place in it, and a policy, if it is to be another than all other cases go by."""

    cluster: Items
    pod: dict[str, Any]
    config: dict[str, Any] | None = None


def answers(lines: Iterable[bytes], profiles: Profiles | None = None, *, changes: bool = True) -> Iterator[Answer]:
    """The answer to each line `{"name", "cluster": v1 List, "pod"}`, in order; blank lines are skipped.

    A line may have a policy under "config"; all others are decided by `profiles`. An answer is an explanation, see
    `Explanation.to_dict`, with the case's "name" before it. A line that is no case is answered by {"name", "error"}.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _answer(line, number, profiles, changes)


def _answer(line: bytes, number: int, profiles: Profiles | None, changes: bool) -> Answer:
    name: object = f"line {number}"
    try:
        given = msgspec.json.decode(line)
        name = given.get("name", name) if isinstance(given, dict) else name
        case = msgspec.convert(given, Case)
        if case.config:
            found = policy(case.config)
            profiles = Profiles(found.profiles, found.features)
        explanation = Cluster.from_objects(case.cluster.items or (), profiles).explain(case.pod)
        return {"name": name, **explanation.to_dict(changes=changes)}
    except (msgspec.MsgspecError, ExtenderError, RecursionError, UnicodeDecodeError) as error:
        return {"name": name, "error": f"line {number}: {error}"}
