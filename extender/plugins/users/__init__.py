"""Turns users' functions into rules of the scheduler, with decorators such as `@predicate`.

Start with `predicate`. `function` reads the signature, and `rule_calls` calls the function with a time limit.
"""

from extender.plugins.users.bind import bind
from extender.plugins.users.device_priority import DevicePriorityFunction, device_priority
from extender.plugins.users.function import RuleFunction, custom_rules, put_in_force
from extender.plugins.users.live_host import LiveHost
from extender.plugins.users.post_filter import Nominate, post_filter
from extender.plugins.users.predicate import PredicateFunction, predicate
from extender.plugins.users.priority import PriorityFunction, priority
from extender.plugins.users.queueing import pre_enqueue, queue_sort
from extender.plugins.users.reserve import ReserveFunction, permit, post_bind, pre_bind, reserve
from extender.plugins.users.rule_calls import OfflineHost

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
