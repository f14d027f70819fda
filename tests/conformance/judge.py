"""Differences of a decision from the stock scheduler's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from extender.engine import Decision, PluginScore
from extender.preemption.candidates import Candidate
from tests.builders import Object

_BETWEEN_PLUGINS = "prefilter result"  # how the oracle names a node that no pre-filter left; stock words name plugins
_NOT_STARTED = "9"  # sorts after every timestamp: who has not started counts as started just now


@dataclass(frozen=True)
class Difference:
    """One thing that was decided otherwise. `subject`: feasible, refusal, scores, raw, total, victims or nominated."""

    subject: str
    node: str
    stock: object
    ours: object

    @property
    def cause(self) -> str:
        """Returns what two cases have in common that fail for the same reason, as far as can be seen."""
        if self.subject == "refusal":
            return f"{self.subject} {self.stock}"
        return f"{self.subject}{' too few' * (not self.ours)}{' too many' * (not self.stock)}"

    def __str__(self) -> str:
        return f"{self.subject} of {self.node}: stock {self.stock}, ours {self.ours}"


def differences(case: Object, stock: Object, ours: Decision, *, by_uid: bool = False) -> list[Difference]:
    """Returns the differences between the oracle's answer and our decision on a case; nothing where they are equal.

    Stock's order is arbitrary in three places, and any order is accepted there: among reasons, among equally important
    victims, and among nodes that are equally cheap to preempt on. With `by_uid`, no two victims are equal: since
    Kubernetes 1.38, the one with the lower UID is more important.
    """
    if _tries_excluded_node(case, stock):
        return []
    found = [*_feasible(stock, ours), *_refusals(stock, ours)]
    if stock.get("scores"):
        found += [*_scores(stock, ours), *_totals(stock, ours)]
    if not stock.get("feasible"):
        found += _preemption(case, stock, ours, by_uid=by_uid)
    return found


def _tries_excluded_node(case: Object, stock: Object) -> bool:
    """Returns True if PreFilter excludes the pod's nominated node.

    kube-scheduler still tries this node first, and alone. The oracle does not, so its answer is not kube-scheduler's.
    """
    node = case["pod"].get("status", {}).get("nominatedNodeName", "")
    return _BETWEEN_PLUGINS in stock.get("filter", {}).get(node, {}).get("reasons", ())


def _feasible(stock: Object, ours: Decision) -> Iterator[Difference]:
    failed = any(refusal["code"] == "Error" for refusal in stock.get("filter", {}).values())
    theirs = set() if failed else set(stock.get("feasible") or ())  # an error ends the attempt of kube-scheduler
    for node in sorted(theirs ^ set(ours.feasible)):
        yield Difference("feasible", node, node in theirs, node not in theirs)


def _refusals(stock: Object, ours: Decision) -> Iterator[Difference]:
    for node, refusal in sorted(ours.refusals.items()):
        theirs = stock.get("filter", {}).get(node) or stock["prefilter"]
        recorded = (refusal.code.title, refusal.plugin, sorted(refusal.reasons))
        wanted = (theirs["code"], theirs.get("plugin", ""), sorted(theirs.get("reasons") or ()))
        only_code = _BETWEEN_PLUGINS in wanted[2] or wanted[0] == "Error"  # errors are worded as Go prints values
        same = recorded[0] == wanted[0] if only_code else recorded == wanted
        if not same and theirs["code"] != "Success":
            yield Difference("refusal", node, wanted, recorded)


def _scores(stock: Object, ours: Decision) -> Iterator[Difference]:
    weighted = {plugin: score.weighted.tolist() for plugin, score in ours.scores.items()}
    raw = {plugin: _shown_by_stock(score) for plugin, score in ours.scores.items()}
    for index, node in enumerate(ours.feasible):
        for subject, theirs, column in (("scores", stock["scores"], weighted), ("raw", stock["raw"], raw)):
            of_node = theirs.get(node, {})
            for plugin in sorted(column.keys() | of_node.keys()):
                wanted, recorded = of_node.get(plugin, 0), column[plugin][index] if plugin in column else 0
                if wanted != recorded:
                    yield Difference(f"{subject} by {plugin}", node, wanted, recorded)


def _shown_by_stock(score: PluginScore) -> list[int]:
    """Raw scores; PodTopologySpread's -1 for a node that it leaves out is a 0 and a note beside it at upstream."""
    left_out = (score.raw == -1) if score.plugin == "PodTopologySpread" else False
    shown: list[int] = np.where(left_out, 0, score.raw).tolist()
    return shown


def _totals(stock: Object, ours: Decision) -> Iterator[Difference]:
    for node, total in zip(ours.feasible, ours.total.tolist(), strict=True):
        if node in stock["total"] and total != stock["total"][node]:
            yield Difference("total", node, stock["total"][node], total)


def _preemption(case: Object, stock: Object, ours: Decision, *, by_uid: bool) -> Iterator[Difference]:
    pods = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod for pod in _pods(case)}
    theirs: Mapping[str, Any] = stock.get("candidates") or {}
    candidates = ours.preemption.candidates if ours.preemption else {}
    for node in sorted(theirs.keys() | candidates.keys()):
        stock_victims = Victims.of_stock(theirs[node]) if node in theirs else None
        our_victims = Victims.of_candidate(candidates[node]) if node in candidates else None
        same = stock_victims == our_victims if by_uid else same_up_to_ties(stock_victims, our_victims, pods)
        if not same:
            yield Difference("victims", node, stock_victims, our_victims)
    chosen = ours.preemption.nominated_node if ours.preemption else None
    best = {node for node in theirs if _cost(theirs[node], pods) == _least(theirs, pods)}
    if chosen not in best and (best or chosen):
        yield Difference("nominated", "the cluster", best, chosen)


@dataclass(frozen=True)
class Victims:
    """The victims on one node, by key (namespace/name), the most important first."""

    pods: Sequence[str]
    violations: int

    @classmethod
    def of_stock(cls, answer: Object) -> Victims:
        return cls(answer["pods"], answer["numPDBViolations"])

    @classmethod
    def of_candidate(cls, candidate: Candidate) -> Victims:
        return cls([victim.pod.key for victim in candidate.victims], candidate.num_pdb_violations)


def same_up_to_ties(stock: Victims | None, ours: Victims | None, pods: Mapping[str, Object]) -> bool:
    """Returns True if both name the same victims, or equally important ones in their place.

    Stock sorts pods by priority and start time with a sort that is not stable, so its choice among equals is arbitrary.
    """
    if stock is None or ours is None:
        return stock is ours
    if any("schedulingGroup" in pods[key]["spec"] for key in stock.pods):  # no two victims are equal in these cases
        return stock.violations == ours.violations and sorted(stock.pods) == sorted(ours.pods)
    importance = [[_importance(pods[key]) for key in victims.pods] for victims in (stock, ours)]
    return stock.violations == ours.violations and importance[0] == importance[1]


def _pods(case: Object) -> Iterator[Object]:
    return (item for item in case["cluster"]["items"] if item["kind"] == "Pod")


def _importance(pod: Object) -> tuple[int, str]:
    return -(pod["spec"].get("priority") or 0), (pod.get("status", {}).get("startTime") or _NOT_STARTED)


def _least(candidates: Mapping[str, Any], pods: Mapping[str, Object]) -> tuple[object, ...]:
    return min(_cost(victims, pods) for victims in candidates.values())


def _cost(victims: Object, pods: Mapping[str, Object]) -> tuple[Any, ...]:
    """Returns what upstream's pickOneNodeForPreemption compares, in its order."""
    priorities = [pods[key]["spec"].get("priority") or 0 for key in victims["pods"]]
    first, highest = next(iter(priorities), 0), max(priorities, default=0)
    started = [_importance(pods[k])[1] for k, p in zip(victims["pods"], priorities, strict=True) if p == highest]
    latest_first = -_seconds(min(started, default=_NOT_STARTED))
    return victims["numPDBViolations"], first, sum(p + 2**31 for p in priorities), len(priorities), latest_first


def _seconds(timestamp: str) -> float:
    return float("inf") if timestamp == _NOT_STARTED else datetime.fromisoformat(timestamp).timestamp()
