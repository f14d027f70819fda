"""Users' own rules: plain functions, or functions over columns, made rules of the scheduler by a decorator."""

from extender.plugins.users.failures import CountedFailures, RaisedFailures, RuleFailures
from extender.plugins.users.function import RuleFunction
from extender.plugins.users.predicate import PredicateFunction, predicate, put_in_force
from extender.plugins.users.priority import PriorityFunction, priority
from extender.plugins.users.reserve import PermitFunction, ReserveFunction, permit, reserve

__all__ = [
    "CountedFailures",
    "PermitFunction",
    "PredicateFunction",
    "PriorityFunction",
    "RaisedFailures",
    "ReserveFunction",
    "RuleFailures",
    "RuleFunction",
    "permit",
    "predicate",
    "priority",
    "put_in_force",
    "reserve",
]
