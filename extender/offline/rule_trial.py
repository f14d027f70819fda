"""Runs users' rules on a cluster, and reports their refusals, scores, times and failures."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
from pydantic import ValidationError

from extender.errors import BindingFailed, ConfigurationError
from extender.framework.annotations import AnnotationRule, choose_annotations
from extender.framework.permit import BindRule, ReserveRule, offline_permits
from extender.framework.plugin import BIND, FILTER, POST_FILTER, PRE_ENQUEUE, QUEUE_SORT, SCORE
from extender.framework.rules import Check, PostFilter, Predicate, PreEnqueueRule, Priority, QueueSort
from extender.offline.answers import Documented
from extender.offline.state import ClusterState
from extender.plugins.device_scoring import scoring_with
from extender.plugins.users.binding import CustomPostBind, CustomPreBind, CustomReserve
from extender.plugins.users.function import DECORATORS, RuleFunction, place_of
from extender.plugins.users.priority import DEVICE_POLICY, CustomDevicePriority
from extender.plugins.users.rule_calls import OfflineHost, described, is_ctrl_c
from extender.policy.library import SourceLoader
from extender.runtime.clock import NO_DEADLINE
from extender.table import PodInfo, Table

Rule = RuleFunction[..., object]
MOST_PODS = 200


class RuleTrial(Documented, frozen=False):  # type: ignore[misc]  # it counts while the rule runs, and msgspec allows it
    """The outcome of running one rule for some pods on all nodes.

    Attributes:
        name: the name of the rule.
        kind: `predicate`, `priority` or `device_priority`, or another rule's extension point, such as `preEnqueue`.
        refused: reason -> the number of refusals. A predicate refuses (pod, node) pairs, any other rule refuses pods.
        answers: answer -> the number of pods with this answer, such as "accepts". Refusals are not counted. Empty for a
            predicate or priority.
        scores: the lowest, the median and the highest score that a priority gave; None if there are no scores.
        differs: the number of pods for which a priority scored some nodes differently from others.
        micros_per_node: the mean time in microseconds for one pod and one node.
        failure: where and why the rule raised, in one line; empty if the rule did not raise. After a failure, the
            numbers are incomplete.
    """

    name: str
    kind: str
    pods: int = 0
    nodes: int = 0
    differs: int = 0
    failure: str = ""
    micros_per_node: float = 0.0
    refused: dict[str, int] = msgspec.field(default_factory=Counter)
    answers: dict[str, int] = msgspec.field(default_factory=Counter)
    scores: Sequence[float] | None = None


def rules_in(path: Path) -> dict[str, Rule]:
    """Returns the rules that a Python file defines, by name.

    Raises ConfigurationError if the file cannot be imported (the message has file and line) or defines no rule.
    """
    module = _imported(path)
    rules = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, RuleFunction) and value.__module__ == module.__name__
    }
    if not rules:
        raise ConfigurationError([f"{path}: no function in it is decorated with {DECORATORS}"])
    return rules


def _imported(path: Path) -> ModuleType:
    loader = SourceLoader(path.stem, str(path)) if path.suffix == ".py" else None
    spec = importlib.util.spec_from_file_location(path.stem, path, loader=loader)
    if spec is None or spec.loader is None:
        raise ConfigurationError([f"{path}: expected a Python file such as rules.py"])
    module = importlib.util.module_from_spec(spec)
    if str(path.parent.resolve()) not in sys.path:
        sys.path.append(str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError as error:
        raise ConfigurationError([f"{path}: {error.strerror}"]) from None
    except BaseException as error:  # importing a file runs the user's code, which may raise any exception
        if is_ctrl_c(error):
            raise
        raise ConfigurationError([described(error)]) from None
    return module


def try_rule(name: str, rule: Rule, arguments: Mapping[str, object], state: ClusterState) -> RuleTrial:
    """Runs the rule on all nodes for at most MOST_PODS pods: pending pods, or any pods if no pod is pending.

    Raises ConfigurationError if `arguments` are not valid for the rule.
    """
    trial = RuleTrial(name, _KINDS.get(rule.point, rule.point))
    try:
        valid = dict(rule.arguments.model_validate(arguments))
    except ValidationError as error:
        faults = [f"{name}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise ConfigurationError([f"{fault}; give it as --arg NAME=VALUE" for fault in faults]) from None
    pods = (state.pending or list(state.infos.values()))[:MOST_PODS]
    began = time.perf_counter()
    try:
        made = rule.rule(name, valid, OfflineHost())
        try_at = _AT.get(rule.point, _bind)
        try_at(trial, made, pods, state.table)
    except Exception as error:  # a user's rule may raise any exception
        trial.failure = described(error, place_of(rule.function))
    trial.pods = len(pods)
    trial.nodes = len(state.node_names())
    trial.micros_per_node = (time.perf_counter() - began) * 1e6 / max(1, trial.pods * trial.nodes)
    return trial


def _filter(trial: RuleTrial, predicate: Predicate, pods: Sequence[PodInfo], table: Table) -> None:
    for pod in pods:
        check = predicate.prepare(pod, table)
        assert isinstance(check, Check)
        for mask, refusal in check.refuse(table.nodes.rows):
            trial.refused["; ".join(refusal.reasons)] += int(np.count_nonzero(mask))


def _score(trial: RuleTrial, priority: Priority, pods: Sequence[PodInfo], table: Table) -> None:
    rows = table.nodes.rows
    scorers = [priority.prepare(pod, table, rows) for pod in pods]
    scores = [scorer.map(rows) for scorer in scorers if scorer is not None and len(rows)]
    if scores:
        values = np.concatenate(scores)
        trial.scores = (int(values.min()), int(np.median(values)), int(values.max()))
        trial.differs = sum(bool(pod_scores.min() != pod_scores.max()) for pod_scores in scores)


def _score_devices(trial: RuleTrial, policy: CustomDevicePriority, pods: Sequence[PodInfo], table: Table) -> None:
    _score(trial, scoring_with(policy), pods, table)


def _pre_enqueue(trial: RuleTrial, rule: PreEnqueueRule, pods: Sequence[PodInfo], table: Table) -> None:
    for pod in pods:
        refusal = rule.refuse(pod, table)
        if refusal is None:
            trial.answers["lets in"] += 1
        else:
            trial.refused["; ".join(refusal.reasons)] += 1


def _queue_sort(trial: RuleTrial, rule: QueueSort, pods: Sequence[PodInfo], _table: Table) -> None:
    for pod in pods:
        trial.answers[f"sorts by {', '.join(map(str, rule.key(pod)))}"] += 1


def _post_filter(trial: RuleTrial, rule: PostFilter, pods: Sequence[PodInfo], table: Table) -> None:
    refused = dict.fromkeys(
        table.nodes.names_of(table.nodes.rows), "node(s) were refused by `extender rule test`, to try this rule"
    )
    for pod in pods:
        proposal = rule.propose(pod, refused, table)
        if proposal.node_name:
            trial.answers["nominates a node"] += 1
        else:
            trial.refused[proposal.reason or "proposes nothing"] += 1


def _bind(trial: RuleTrial, rule: ReserveRule | BindRule, pods: Sequence[PodInfo], table: Table) -> None:
    """Runs a rule of Reserve, Permit, PreBind or PostBind for each pod as if it were on the first node."""
    permits = offline_permits(table)
    for row in table.nodes.rows[:1].tolist():
        node = table.nodes.node(row)
        for pod in pods:
            with table.hypothetically(removed=[pod.uid]), table.hypothetically(placed=[(pod, node.name)]):
                try:
                    if isinstance(rule, CustomReserve):
                        seconds = rule.run(pod.pod, node, permits, NO_DEADLINE)
                        trial.answers[f"lets the pod wait {seconds:g} s" if seconds else "accepts"] += 1
                        rule.unreserve(pod.pod, node, permits, NO_DEADLINE)
                    elif isinstance(rule, CustomPreBind | CustomPostBind):
                        rule.run(pod.pod, node, permits)
                        trial.answers["accepts"] += 1
                except BindingFailed as error:
                    trial.refused[str(error)] += 1


def _choose(trial: RuleTrial, rule: AnnotationRule, pods: Sequence[PodInfo], table: Table) -> None:
    """Lets a Bind rule choose for each pod, on the first node that the rule does not refuse for the pod."""
    for pod in pods:
        refusal = ""
        with table.hypothetically(removed=[pod.uid]):
            for row in table.nodes.rows.tolist():
                try:
                    chosen = choose_annotations([rule], pod, row, table)
                except BindingFailed as error:
                    refusal = refusal or str(error)
                else:
                    trial.answers[f"writes {', '.join(map('='.join, chosen)) or 'no annotation'}"] += 1
                    break
            else:
                trial.refused[refusal or "there is no node"] += 1


_KINDS = {FILTER: "predicate", SCORE: "priority", DEVICE_POLICY: "device_priority"}
_AT: Mapping[str, Callable[[RuleTrial, Any, Sequence[PodInfo], Table], None]] = {
    FILTER: _filter,
    SCORE: _score,
    DEVICE_POLICY: _score_devices,
    PRE_ENQUEUE: _pre_enqueue,
    QUEUE_SORT: _queue_sort,
    POST_FILTER: _post_filter,
    BIND: _choose,
}
