"""Explains many cases: reads one case from each line, and yields one answer for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from extender.errors import ExtenderError
from extender.framework.profile import Profiles
from extender.offline.explain.explanation import Explanation
from extender.offline.state import ClusterState
from extender.policy.loading import read as read_policy
from extender.runtime.questions import time_limit
from extender.snapshots.objects import to_objects

Answer = dict[str, Any]


class Items(msgspec.Struct, rename="camel"):
    """A Kubernetes v1 List, which holds objects of any kinds; a snapshot also has the version of Kubernetes."""

    items: list[dict[str, Any]] | None = None
    kubernetes_version: str = ""


class Case(msgspec.Struct):
    """A cluster and a pod to place in it. `config` is a policy that applies to this case only."""

    cluster: Items
    pod: dict[str, Any]
    config: dict[str, Any] | None = None


def answers(
    lines: Iterable[bytes], profiles: Profiles | None = None, *, changes: bool = True, seconds: float = 0
) -> Iterator[Answer]:
    """Yields the answer to each line, which holds one case as JSON; skips blank lines.

    A line is {"name", "cluster": v1 List, "pod", "config"}. The policy in "config" applies to this case; without one,
    `profiles` apply. An answer is the case's "name" and an explanation (`Explanation.to_dict`), with the "error" if an
    error ends the attempt; or only {"name", "error"} if the line is not a valid case, or takes more than `seconds`
    (0: no limit).
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _answer(line, number, profiles, changes, seconds)


def _answer(line: bytes, number: int, profiles: Profiles | None, changes: bool, seconds: float) -> Answer:
    name: object = f"line {number}"
    try:
        decoded = msgspec.json.decode(line)
        name = decoded.get("name", name) if isinstance(decoded, dict) else name
        case = msgspec.convert(decoded, Case)
        if case.config:
            own = read_policy(case.config).scheduler_profiles()
            profiles = own.following(profiles.features.version) if profiles else own
        with time_limit(seconds):
            objects, version = to_objects(case.cluster.items or ()), case.cluster.kubernetes_version
            state = ClusterState(objects, profiles, kubernetes_version=version)
            explanation = Explanation(state, state.stored(case.pod))
            failure = explanation.decision.error
            ended = {} if failure is None else {"error": ", ".join(failure.reasons)}
            return {"name": name, **explanation.to_dict(changes=changes), **ended}
    except (msgspec.MsgspecError, ExtenderError, RecursionError, UnicodeDecodeError) as error:
        return {"name": name, "error": f"line {number}: {error}"}
