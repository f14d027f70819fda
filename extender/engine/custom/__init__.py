"""Users' own rules: plain functions, or functions over columns, made predicates and priorities by a decorator."""

from extender.engine.custom.failures import CountedFailures, Failures, RaisedFailures
from extender.engine.custom.function import RuleFunction
from extender.engine.custom.predicate import PredicateFunction, predicate
from extender.engine.custom.priority import PriorityFunction, priority

__all__ = [
    "CountedFailures",
    "Failures",
    "PredicateFunction",
    "PriorityFunction",
    "RaisedFailures",
    "RuleFunction",
    "predicate",
    "priority",
]
