"""Turns users' functions into rules of the scheduler, with decorators such as `@predicate`.

Start with `predicate`. `function` reads the signature, and `rule_calls` calls the function with a time limit. `handle`
is what a rule sees of the cluster and its process.
"""

from extender.plugins.users.binding import ReserveFunction, bind, permit, post_bind, pre_bind, reserve
from extender.plugins.users.function import RuleFunction, custom_rules, put_in_force
from extender.plugins.users.predicate import Nominate, PredicateFunction, post_filter, predicate
from extender.plugins.users.priority import DevicePriorityFunction, PriorityFunction, device_priority, priority
from extender.plugins.users.queueing import pre_enqueue, queue_sort
from extender.plugins.users.rule_calls import LiveHost, OfflineHost

DECORATORS = (
    "@predicate, @priority, @device_priority, @pre_enqueue, @queue_sort, @post_filter, @reserve, @permit, @bind,"
    " @pre_bind or @post_bind"
)

__all__ = [
    "DECORATORS",
    "DevicePriorityFunction",
    "LiveHost",
    "Nominate",
    "OfflineHost",
    "PredicateFunction",
    "PriorityFunction",
    "ReserveFunction",
    "RuleFunction",
    "bind",
    "custom_rules",
    "device_priority",
    "permit",
    "post_bind",
    "post_filter",
    "pre_bind",
    "pre_enqueue",
    "predicate",
    "priority",
    "put_in_force",
    "queue_sort",
    "reserve",
]
