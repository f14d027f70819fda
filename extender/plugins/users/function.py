"""Reads the signature of a user's function, which defines how to call it and which arguments the policy may set.

The number of positional parameters selects the form of the function. A predicate or priority of (pod, node) is called
for each node; both arguments are structs of the model. If `node` is annotated as `NodeInfo`, the argument also has the
node's pods and totals. A predicate or priority of (pod, table, rows) is called once for all rows. Other decorators
define their own forms.

The keyword-only parameter `handle` gets a `Handle`. Other keyword-only parameters are the rule's arguments. The policy
sets them, and pydantic validates them by their annotations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, get_type_hints, runtime_checkable

from pydantic import BaseModel, ConfigDict, create_model

from extender.errors import DeadlineExceeded, RuleUnanswered
from extender.framework.cluster_events import Action, Resource
from extender.framework.permit import NO_PERMITS, Permits
from extender.framework.profile import Profile
from extender.framework.queueing_hints import EVERYTHING, Interest, Interests
from extender.model.node import Node
from extender.model.pod import Pod
from extender.plugins.users.handle import Handle, RuleHost, RunningProcess, nothing_waits, refuse_in_queue_rule
from extender.plugins.users.rule_calls import CallEnded, answer_of, described, is_ctrl_c, sendable
from extender.runtime.clock import Deadline
from extender.runtime.text import with_suggestion
from extender.table import NodeInfo, Table
from extender.table.labels import Rows

T = TypeVar("T")
D = TypeVar("D")

_RESOURCES = {resource.value.rpartition("/")[2]: resource for resource in Resource if resource is not Resource.WILDCARD}
_ACTIONS = {"".join(map(str.title, name.split("_"))): action for name, action in Action.__members__.items()}
P = ParamSpec("P")
R = TypeVar("R", covariant=True)
_THREE = 3
_HANDLE = "handle"
_LONGEST = 300  # characters of an error; the message of an event has 1024 for everything
_LAZY = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
DECORATORS = (
    "@predicate, @priority, @device_priority, @pre_enqueue, @queue_sort, @post_filter, @reserve, @permit, @bind,"
    " @pre_bind or @post_bind"
)


def interests_of(woken_by: Mapping[str, str] | None) -> Interests:
    """Converts the argument `woken_by` of a decorator to interests; None means that any event may help.

    Args:
        woken_by: resource -> actions, in upstream's words: {"Node": "Add|UpdateNodeLabel", "AssignedPod": "Delete"}.

    Raises:
        TypeError: a word is not one of upstream's EventResource or ActionType.
    """
    if woken_by is None:
        return EVERYTHING
    return Interests(tuple(Interest(_find(_RESOURCES, name), _actions(actions)) for name, actions in woken_by.items()))


def _actions(text: str) -> Action:
    actions = Action(0)
    for name in text.split("|"):
        actions |= _find(_ACTIONS, name.strip())
    return actions


def _find(words: Mapping[str, T], word: str) -> T:
    if word in words:
        return words[word]
    raise TypeError(with_suggestion(f"woken_by: unknown {word!r}", word, words))


class RuleFunction(Generic[P, R]):
    """A function that a decorator turned into a rule; calling it still calls the function.

    Attributes:
        point: the extension point where the rule runs.
        forms: the parameter lists that the function may have, by number of parameters, like {2: "(pod, node)"}.
        columns: True if the function takes three positional parameters, such as (pod, table, rows).
        wants_pods: True if its second parameter is annotated as a NodeInfo, a node with its pods and totals.
        wants_handle: True if it has the keyword-only parameter `handle`.
        arguments: the pydantic model of the function's other keyword-only parameters.
        interests: the events that may help a pod that the rule refused.
    """

    point: str
    forms: Mapping[int, str] = {2: "(pod, node)", 3: "(pod, table, rows)"}

    def __init__(self, function: Callable[P, R], woken_by: Mapping[str, str] | None = None) -> None:
        """Reads the signature of the function. Raises TypeError if a rule cannot have this signature."""
        parameters = list(inspect.signature(function).parameters.values())
        plain = _plain(function)
        self.function = function
        self.__name__ = plain.__name__
        self.__module__ = plain.__module__
        self.__doc__ = plain.__doc__
        self.columns = _positional(plain.__qualname__, parameters, self.forms) == _THREE
        self.wants_pods = len(parameters) > 1 and _is_node_info(parameters[1].annotation)
        _refuse_lazy(plain.__qualname__, function)
        by_keyword = {parameter.name: parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
        self.wants_handle = by_keyword.pop(_HANDLE, None) is not None
        self.arguments = _model(plain, list(by_keyword.values()))
        self.interests = interests_of(woken_by)
        self._processes: Mapping[str, RunningProcess] = {}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.__module__}:{self.__name__}>"

    def rule(self, name: str, arguments: Mapping[str, object], host: RuleHost) -> Any:
        """Returns the rule that the engine runs; its type depends on the extension point. `arguments` must be valid."""
        raise NotImplementedError

    @property
    def in_force(self) -> bool:
        """True while `extender serve` or `extender schedule` uses the rule. False offline, or after it was replaced.

        A thread that the rule started should end when this becomes False.
        """
        return bool(self._processes)

    def wake(self) -> None:
        """Retries the pods that this rule refused, after a change outside the cluster. May be called from any thread.

        `extender schedule` retries them after their backoff. In `extender serve` the leader makes kube-scheduler retry
        those that fit now. Does nothing while the rule is not in force. Raises RuntimeError in a rule of PreEnqueue or
        QueueSort, which the queue calls with its lock held.
        """
        refuse_in_queue_rule("wake")
        for name, process in self._processes.items():
            process.wake(name)

    def put_in_force(self, processes: Mapping[str, RunningProcess]) -> None:
        """Connects the rule to the running process.

        `processes`: the process for each name that the policy gives the rule. If empty, the rule is disconnected.
        """
        self._processes = processes

    def handle(
        self, name: str, pod: Pod, host: RuleHost, table: Table | None = None, permits: Permits = NO_PERMITS
    ) -> Handle:
        """Returns the handle for one call of the rule.

        Args:
            table: the table of the decision; None if the call belongs to no decision.
            permits: the waiting pods and tables that the handle reads if no process uses the rule, as in offline
                commands.
        """
        process = self._processes.get(name) or RunningProcess(nothing_waits, permits)
        return Handle(name, pod, host, process, table)


def as_decorator(
    create: Callable[[Callable[P, R]], D], function: Callable[P, R] | None
) -> D | Callable[[Callable[P, R]], D]:
    """Returns `create(function)`. Without a function, returns `create`, which the decorator then calls with it."""
    return create if function is None else create(function)


@dataclass(frozen=True, slots=True)
class BoundFunction:
    """A rule's function together with the arguments from the policy."""

    function: Callable[..., object]
    arguments: Mapping[str, object]

    def __call__(self, *inputs: object) -> object:
        return self.function(*inputs, **self.arguments)


@dataclass(frozen=True, slots=True)
class CustomRule:
    """A user's rule as a policy names it.

    Attributes:
        name: the name in the policy.
        decorated: the function, with the arguments of its decorator.
        given: the arguments that the policy sets.
        host: the process that runs the rule.
    """

    name: str
    decorated: RuleFunction[..., Any]
    given: Mapping[str, object]
    host: RuleHost

    @property
    def interests(self) -> Interests:
        return self.decorated.interests

    def function(self, pod: Pod, table: Table | None = None) -> BoundFunction:
        """Returns the user's function with the policy's arguments and, if it takes one, a handle for this pod."""
        if not self.decorated.wants_handle:
            return BoundFunction(self.decorated.function, self.given)
        handle = self.decorated.handle(self.name, pod, self.host, table)
        return BoundFunction(self.decorated.function, {**self.given, _HANDLE: handle})

    def answer_of(self, call: Callable[[], T], deadline: Deadline, what: str = "") -> T:
        """Calls `call` like `rule_calls.answer_of`, with a deadline that the host may limit. Reports a slow rule.

        If less than half of the deadline's time was left before the call, or if the call could not start, nothing is
        reported, because the rule may not be slow.

        Args:
            what: the name of the call in the error; by default the name of the rule.

        Raises:
            RuleUnanswered: the call did not end before the deadline, or could not start.
        """
        had_time = deadline.left_seconds >= deadline.seconds / 2
        try:
            return answer_of(what or self.name, call, deadline)
        except RuleUnanswered as error:
            if had_time:
                self.report(error)
                error.is_left_out = self.host.ignores_failures
            raise

    def outlived(self, call: Callable[[], T], otherwise: T) -> T:
        """Returns what `call` returns; `otherwise` if the rule is left out, or fails and the decision goes on.

        Raises:
            DeadlineExceeded: the time of the decision is over, and the rule's failure may not be ignored.
        """
        if self.is_left_out:
            return otherwise
        try:
            return call()
        except DeadlineExceeded as error:
            if self.ignores_late(error):
                return otherwise
            raise
        except BaseException as error:
            self.report(error)
            return otherwise

    @property
    def is_left_out(self) -> bool:
        """True if decisions must go on without the rule now."""
        return self.host.leaves_out(self.name)

    def report(self, error: BaseException) -> None:
        """Reports the function's exception to the process. Raises the exception again if it ends the call or process.

        A call that could not start, because too many earlier calls have not returned, is reported only if the decision
        goes on without the rule.
        """
        if is_ctrl_c(error) or isinstance(error, CallEnded):
            raise error
        could_not_start = isinstance(error, RuleUnanswered) and error.has_returned is None
        if self.host.ignores_failures or not could_not_start:
            self.host.failed(self.name, error)

    def ignores(self, error: BaseException) -> bool:
        """Reports the exception; returns True if the process goes on as if the rule had accepted the pod."""
        self.report(error)
        return self.host.ignores_failures

    def ignores_late(self, error: DeadlineExceeded) -> bool:
        """Returns True if the decision goes on without the rule, which missed the deadline of a call.

        The decision must end if the rule may still be reading its table. The next decision then leaves the rule out.
        """
        if isinstance(error, RuleUnanswered):  # `answer_of` has reported it
            return self.host.ignores_failures and error.has_returned is None
        return self.host.ignores_failures and self.ignores(error)

    def failure_text(self, error: BaseException, prefix: str = "") -> str:
        """Returns the reason for the pod that says how the rule failed, in one line.

        `prefix` names the rule; by default in our own words.
        """
        text = " ".join(described(error, place_of(self.decorated.function)).split())
        shortened = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        return sendable((prefix or f"rule {self.name} failed: ") + shortened)


def put_in_force(profiles: Iterable[Profile], process: RunningProcess, before: Iterable[Profile] = ()) -> None:
    """Connects the users' rules of `profiles` to the running process.

    Rules that are only in `before`, the profiles used until now, are disconnected.
    """
    by_rule: dict[RuleFunction[..., Any], dict[str, RunningProcess]] = {
        rule.decorated: {} for rule in custom_rules(before)
    }
    for rule in custom_rules(profiles):
        by_rule.setdefault(rule.decorated, {})[rule.name] = process
    for decorated, by_name in by_rule.items():
        decorated.put_in_force(by_name)


@runtime_checkable
class CallsUsersRules(Protocol):
    """A rule that calls users' rules itself, as DeviceScoring does with its policies."""

    @property
    def users_rules(self) -> Sequence[CustomRule]: ...


def custom_rules(profiles: Iterable[Profile]) -> Iterator[CustomRule]:
    """Yields the users' rules of the profiles, at every extension point."""
    for profile in profiles:
        for rule in profile.rules:
            if isinstance(rule, CustomRule):
                yield rule
            elif isinstance(rule, CallsUsersRules):
                yield from rule.users_rules


def nodes_at(rows: Rows, table: Table, with_pods: bool) -> Iterable[Node | NodeInfo]:
    """Yields the nodes on `rows`, for a function that is called once per node.

    If `with_pods` is True, yields NodeInfos, which also have the node's pods and totals.
    """
    return table.infos(rows) if with_pods else map(table.nodes.node, rows.tolist())


def _plain(function: Callable[..., object]) -> Any:
    """Returns the function inside a partial or wrapper. For another callable object, returns its class."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    return function if hasattr(function, "__qualname__") else type(function)


def place_of(function: Callable[..., object]) -> str:
    """Returns the file and line where the function begins, such as `rules.py:12`; "" for other callables."""
    code = getattr(_plain(function), "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code is not None else ""


def file_of(function: Callable[..., object]) -> Path | None:
    """Returns the file that defines the function, or the class of an instance; None if there is no file."""
    with suppress(TypeError, OSError):
        file = inspect.getsourcefile(_plain(function))
        return Path(file) if file else None
    return None


def _positional(name: str, parameters: list[inspect.Parameter], forms: Mapping[int, str]) -> int:
    """Returns the number of positional parameters. Raises TypeError if `forms` does not have this number."""
    positional = sum(parameter.kind in _POSITIONAL for parameter in parameters)
    variadic = any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in parameters)
    if variadic or positional not in forms:
        first = next(iter(forms.values())).strip("()")
        raise TypeError(
            f"{name} must take {' or '.join(forms.values())}, and its own arguments by keyword:"
            f" def rule({first}, *, watts: int = 500)"
        )
    return positional


def _is_node_info(annotation: object) -> bool:
    """Returns True if the annotation is the class NodeInfo, or a string with its name.

    A string is not evaluated, because the name may be imported only for type checkers.
    """
    return annotation is NodeInfo or str(annotation).rpartition(".")[2] == NodeInfo.__name__


def _refuse_lazy(name: str, function: Callable[..., object]) -> None:
    is_function = inspect.isroutine(function) or isinstance(function, partial)
    called = function if is_function else type(function).__call__
    if any(is_lazy(called) for is_lazy in _LAZY):
        raise TypeError(f"{name} must return its answer: a rule cannot be an async function or a generator")


def _model(function: Callable[..., object], parameters: list[inspect.Parameter]) -> type[BaseModel]:
    """Returns a pydantic model of the arguments, which are the function's keyword-only parameters.

    Annotations of other parameters are not evaluated, because their types may be imported only for type checkers.
    """
    annotations = {p.name: Any if p.annotation is p.empty else p.annotation for p in parameters}
    names = getattr(function.__call__ if inspect.isclass(function) else function, "__globals__", {})
    types = get_type_hints(SimpleNamespace(__annotations__=annotations), names, include_extras=True)
    fields: dict[str, Any] = {p.name: (types[p.name], ... if p.default is p.empty else p.default) for p in parameters}
    config = ConfigDict(extra="forbid", strict=True, protected_namespaces=(), arbitrary_types_allowed=True)
    return create_model(function.__name__, __config__=config, **fields)
