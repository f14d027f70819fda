"""All exceptions that leave a module of this package.

    ExtenderError
    ├── ConfigurationError      settings or a policy; `faults` lists everything that is wrong, each with its path
    ├── MalformedInput          input that cannot be parsed
    │   ├── MalformedQuantity   "12Gx"
    │   ├── MalformedRequest    an HTTP request that its endpoint does not accept
    │   ├── MalformedAnswer     another extender's answer that no scheduler could use
    │   └── MalformedCluster    a snapshot file, or an object in it, that cannot be read
    ├── IllegalTransition       an event that the assumed-pod state machine does not allow in this state
    ├── UnknownNode, UnknownPod a name that is not in the cache
    ├── Outdated                an object has changed since a decision was made on it
    ├── DeadlineExceeded        a decision took too long
    │   ├── GaveWay             other pods wait, and the decision had its share of the time
    │   ├── TooExpensive        a question took more time or memory than it may
    │   └── RuleUnanswered      a user's rule is still running
    ├── RuleFailed              a rule raised, or cannot judge the pod, and the work cannot continue
    ├── BindingFailed           a pod was rejected before its Binding, or what it needs could not be reserved
    │   └── Preempted           a preemptor needs the room of a pod that is not bound yet
    ├── TaskFailed              memory ran out in a background task, or a core part is broken; the process has to end
    ├── InvalidAnswer           our own answer to the scheduler would harm it
    └── ClusterError            a call to the API server failed
        ├── Refused             the API server refused the call; nothing changed
        │   ├── Conflict        409: already bound, or recreated under the same name
        │   ├── NotFound        404
        │   └── ExtenderRefused another extender was asked to bind the pod, and refused; also a BindingFailed
        └── OutcomeUnknown      the connection ended before the answer; the call may have taken effect
            └── ExtenderUnanswered  another extender was asked to bind the pod

    RuleHangs                   a rule hangs in an offline command; handled as an exception of the rule is

Exceptions of libraries are converted to these where they enter (`cluster`, `extender_v1`, `config`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


class ExtenderError(Exception):
    """The base class: catch it to catch everything that the package raises on purpose."""


class ConfigurationError(ExtenderError):
    """Settings or a policy are wrong; `faults` lists every fault as "path: what is wrong"."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)


class MalformedInput(ExtenderError):
    """Input cannot be parsed; the message is one line and says where."""


class MalformedQuantity(MalformedInput):
    """A text is not a quantity of the Kubernetes API."""


class MalformedRequest(MalformedInput):
    """An HTTP request has a body that is not the payload of its verb, or wrong arguments."""


class MalformedAnswer(MalformedInput):
    """Another extender's answer is not the payload of its verb, or does not answer its request."""


class MalformedCluster(MalformedInput):
    """A cluster snapshot, or an object in it, cannot be read."""


class IllegalTransition(ExtenderError):
    """The event cannot happen in the pod's state; nothing was changed."""


class UnknownNode(ExtenderError):
    """The cache has no node of this name."""


class UnknownPod(ExtenderError):
    """The cache has no pod of this name or UID."""


class Outdated(ExtenderError):
    """An object has changed since a decision was made on it."""


class DeadlineExceeded(ExtenderError):
    """A decision took too long. Raised between two steps of the decision, so that no step is half done."""


class GaveWay(DeadlineExceeded):
    """A decision ended because other pods wait, and it had its share of the time."""


class TooExpensive(DeadlineExceeded):
    """A question took more time or memory than it may. Unlike other missed deadlines, raised at any moment."""

    def __str__(self) -> str:
        return explained(super().__str__(), self)


class RuleUnanswered(DeadlineExceeded):
    """A user's rule missed the deadline. Its thread may still run and read the table of the decision.

    Attributes:
        has_returned: returns True once the rule has returned; None if the rule did not start.
        is_left_out: True if the next decisions go on without the rule.
    """

    def __init__(self, message: str, has_returned: Callable[[], bool] | None = None) -> None:
        super().__init__(message)
        self.has_returned = has_returned
        self.is_left_out = False


class RuleHangs(Exception):
    """A user's rule has not returned in an offline command. It ends the command, as an exception of the rule does."""


def explained(message: str, error: BaseException) -> str:
    """Returns `message` with the error's notes: which object took the time, and what is known so far."""
    first, *others = getattr(error, "__notes__", ()) or ("",)
    return f"{message}: {'; '.join([f'{first} took the time', *others])}" if first else message


class RuleFailed(ExtenderError):
    """A user's rule raised an exception, or a plugin cannot judge the pod; the message names the rule and the error.

    `plugin` is the name of the plugin that cannot judge the pod; empty for a user's rule.
    """

    def __init__(self, message: str, plugin: str = "") -> None:
        super().__init__(message)
        self.plugin = plugin


class BindingFailed(ExtenderError):
    """The pod was rejected before its Binding, or what it needs could not be reserved or bound.

    `plugin` is the name of the plugin that rejected the pod; the pod then waits for an event that this plugin is
    interested in. If `plugin` is empty, the pod is retried after its backoff.
    """

    def __init__(self, message: str, plugin: str = "") -> None:
        super().__init__(message)
        self.plugin = plugin


class Preempted(BindingFailed):
    """The pod's bind was cancelled, because a preemptor needs its room. The pod is retried after its backoff."""


class TaskFailed(ExtenderError):
    """Memory ran out in a background task, or a core part is broken; the process has to end, and a restart helps."""


class InvalidAnswer(ExtenderError):
    """Our answer to the scheduler would harm it, so the answer must not be sent."""


class ClusterError(ExtenderError):
    """A call to the API server failed."""


class Refused(ClusterError):
    """The API server refused the call; nothing changed. `status` is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Conflict(Refused):
    """409: the object is not in the state that the caller expects."""


class NotFound(Refused):
    """404: the object does not exist."""


class ExtenderRefused(Refused, BindingFailed):
    """Another extender was asked to bind the pod, and refused, so nothing was bound. No plugin is to blame."""


class OutcomeUnknown(ClusterError):
    """The call ended without an answer: it may or may not have taken effect."""


class ExtenderUnanswered(OutcomeUnknown):
    """Another extender was asked to bind the pod, and gave no answer. No plugin is to blame."""
