"""Every exception that leaves a module of this package.

    ExtenderError
    ├── ConfigurationError      settings, policies: `faults` has every fault found, each with its path
    ├── MalformedInput          bytes that are not what they should be
    │   ├── MalformedQuantity   "12Gx"
    │   ├── MalformedRequest    an HTTP request that is not what its path takes
    │   ├── MalformedAnswer     another extender's answer that no scheduler could use
    │   └── MalformedCluster    a snapshot file that cannot be read, or an object in it
    ├── IllegalTransition       an event that the assumed-pod state machine has no row for
    ├── UnknownNode, UnknownPod a name that the cache does not hold
    ├── Outdated                an object is no longer what a decision was made on
    ├── DeadlineExceeded        a decision takes longer than it may
    │   └── RuleUnanswered      a user's rule is still at work
    ├── RuleFailed              a rule raised, or cannot judge the pod, where that ends the work
    ├── BindingFailed           a pod was rejected before its Binding, or what it needs could not be had
    ├── TaskFailed              a background task raised an unexpected error: the process has to end
    ├── InvalidAnswer           the validator found an answer that would hurt the scheduler
    └── ClusterError            a call to the API server did not succeed
        ├── Refused             the API server said no: nothing was changed
        │   ├── Conflict        409: bound already, or made anew under the same name
        │   └── NotFound        404
        └── OutcomeUnknown      the connection ended before an answer: it may have happened

Foreign exceptions are mapped to these at the border that meets them (`cluster`, `extender_v1`, `config`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any


class ExtenderError(Exception):
    """The root: catch this to catch everything the package raises on purpose."""


class ConfigurationError(ExtenderError):
    """Settings or a policy with faults; `faults` holds them all, each "path: what is wrong"."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)


class MalformedInput(ExtenderError):
    """Bytes that are not what they should be; the message is one line and names the place."""


class MalformedQuantity(MalformedInput):
    """Not a quantity of the Kubernetes API."""


class MalformedRequest(MalformedInput):
    """An HTTP request that is not what its path takes: a body that is not the payload of its verb, wrong arguments."""


class MalformedAnswer(MalformedInput):
    """Another extender's answer is not the payload of its verb, or not an answer to its request."""


class MalformedCluster(MalformedInput):
    """A cluster snapshot, or an object in it, that cannot be read."""


class IllegalTransition(ExtenderError):
    """The pod is in a state in which this event cannot happen; nothing was changed."""


class UnknownNode(ExtenderError):
    """No node of this name is in the cache."""


class UnknownPod(ExtenderError):
    """No pod of this name or UID is in the cache."""


class Outdated(ExtenderError):
    """An object is no longer what a decision was made on."""


class DeadlineExceeded(ExtenderError):
    """A decision takes longer than it may; raised between two of its steps, so that nothing is left half done."""


class RuleUnanswered(DeadlineExceeded):
    """A user's rule is still at work, in a thread of its own and on the table that it was given.

    `call` is done when it is through; None: it was not asked.
    """

    def __init__(self, message: str, call: Future[Any] | None = None) -> None:
        super().__init__(message)
        self.call = call


class RuleFailed(ExtenderError):
    """A user's rule raised, or a plugin cannot judge the pod; the message names the rule and the error."""


class BindingFailed(ExtenderError):
    """The needs of a pod could not be reserved or bound before its Binding, or it was rejected there.

    `plugin` has rejected the pod, which waits for what may change its mind; empty: the pod is simply tried again.
    """

    def __init__(self, message: str, plugin: str = "") -> None:
        super().__init__(message)
        self.plugin = plugin


class TaskFailed(ExtenderError):
    """A background task raised an unexpected error; the process has to end, because the task's work is half done."""


class InvalidAnswer(ExtenderError):
    """An answer that would hurt the scheduler: it must not leave the process."""


class ClusterError(ExtenderError):
    """A call to the API server did not succeed."""


class Refused(ClusterError):
    """The API server turned the call down (`status` is the HTTP status): nothing was changed."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Conflict(Refused):
    """409: the object is no longer what the caller believes it to be."""


class NotFound(Refused):
    """404: the object is gone."""


class OutcomeUnknown(ClusterError):
    """The call ended without an answer: it may or may not have taken effect."""
