"""A user's rules tried on a cluster: what they refuse and prefer, what they cost, and where they fail."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from extender.errors import ConfigurationError
from extender.framework.rules import Check, Predicate, Priority
from extender.offline.cluster import Cluster, state_of
from extender.plugins.users import PredicateFunction, PriorityFunction, RaisedFailures, ReserveFunction
from extender.plugins.users.calls import described, is_ctrl_c
from extender.table import PodInfo, Table

Rule = PredicateFunction[..., object] | PriorityFunction[..., object]
MOST_PODS = 200


@dataclass(slots=True)
class RuleTrial:
    """The outcome of one rule for some pods on all nodes.

    Attributes:
        kind: `predicate` or `priority`.
        refused: the number of (pod, node) pairs by reason, of a predicate.
        scores: lowest, median and highest score, of a priority.
        differs: the number of pods for which the nodes do not all have the same score.
        micros_per_node: microseconds a node and pod.
        failure: where and why it raised, in one line; nothing else counts then.
    """

    name: str
    kind: str
    pods: int = 0
    nodes: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    scores: tuple[int, int, int] | None = None
    differs: int = 0
    micros_per_node: float = 0.0
    failure: str = ""

    def to_dict(self) -> dict[str, Any]:
        names = ("name", "kind", "pods", "nodes", "differs", "failure")
        told: dict[str, Any] = {name: getattr(self, name) for name in names}
        return told | {"microsPerNode": self.micros_per_node, "refused": dict(self.refused), "scores": self.scores}


def rules_in(path: Path) -> dict[str, Rule]:
    """Returns the rules that a file of Python defines, by name.

    Raises ConfigurationError, with file and line, where the file cannot be imported or has no rule.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError([f"{path}: want a file of Python, rules.py"])
    module = importlib.util.module_from_spec(spec)
    if str(path.parent.resolve()) not in sys.path:
        sys.path.append(str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError as error:
        raise ConfigurationError([f"{path}: {error.strerror}"]) from None
    except BaseException as error:  # importing runs it, and it may raise anything
        if is_ctrl_c(error):
            raise
        raise ConfigurationError([described(error)]) from None
    found = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, PredicateFunction | PriorityFunction) and value.__module__ == module.__name__
    }
    if not found and any(isinstance(value, ReserveFunction) for value in vars(module).values()):
        raise ConfigurationError([f"{path}: rules of Reserve and Permit are asked where pods are bound, and not tried"])
    if not found:
        raise ConfigurationError([f"{path}: no function in it is decorated with @predicate or @priority"])
    return found


def try_rule(name: str, rule: Rule, arguments: Mapping[str, object], cluster: Cluster) -> RuleTrial:
    """Returns what the rule makes of the pods that wait, else of all pods, of MOST_PODS at most.

    Raises ConfigurationError where it does not take these arguments.
    """
    trial = RuleTrial(name, "predicate" if isinstance(rule, PredicateFunction) else "priority")
    try:
        valid = dict(rule.arguments.model_validate(arguments))
    except ValidationError as error:
        faults = [f"{name}: {'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise ConfigurationError([f"{fault}; give it as --arg NAME=VALUE" for fault in faults]) from None
    state = state_of(cluster)
    pods = (state.pending or list(state.infos.values()))[:MOST_PODS]
    began = time.perf_counter()
    try:
        if isinstance(rule, PredicateFunction):
            _filter(trial, rule.rule(name, valid, RaisedFailures()), pods, state.table)
        else:
            _score(trial, rule.rule(name, valid, RaisedFailures()), pods, state.table)
    except Exception as error:  # whatever a user's code may raise
        trial.failure = described(error)
    trial.pods, trial.nodes = len(pods), len(cluster.nodes)
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
        trial.differs = sum(bool(each.min() != each.max()) for each in scores)
