"""Users' own rules: plain functions, or functions over columns, made predicates and priorities by a decorator."""

from extender.plugins.users.failures import CountedFailures, Failures, RaisedFailures
from extender.plugins.users.function import RuleFunction
from extender.plugins.users.predicate import PredicateFunction, predicate
from extender.plugins.users.priority import PriorityFunction, priority

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
