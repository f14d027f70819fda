"""Users' own rules: plain functions, or functions over columns, made predicates and priorities by a decorator."""

from extender.plugins.users.failures import CountedFailures, RaisedFailures, RuleFailures
from extender.plugins.users.function import RuleFunction
from extender.plugins.users.predicate import PredicateFunction, predicate, put_in_force
from extender.plugins.users.priority import PriorityFunction, priority

__all__ = [
    "CountedFailures",
    "PredicateFunction",
    "PriorityFunction",
    "RaisedFailures",
    "RuleFailures",
    "RuleFunction",
    "predicate",
    "priority",
    "put_in_force",
]
