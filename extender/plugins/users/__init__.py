"""Turns users' functions into rules of the scheduler, with decorators such as `@predicate`.

Start with `predicate`. `function` reads the signature, and `calls` calls the function with a time limit.
"""

from extender.plugins.users.calls import CountedFailures, RaisedFailures, RuleFailures
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
