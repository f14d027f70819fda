"""A user's function and what its signature says: what the engine passes to it, and what the policy may set.

Two positional parameters are (pod, node), the model's values: the function is called for one node after another.
Three are (pod, table, rows): it is called once and answers for all rows. Rules of Reserve and Permit are about one
node, and take (pod, node) or (pod, node, handle). Keyword-only parameters are the rule's arguments: the policy sets
them, their annotations say what is allowed (anything that pydantic understands).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Generic, ParamSpec, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from extender.framework.events.cluster_events import Action, Resource
from extender.framework.events.queueing_hints import EVERYTHING, Interest, Interests
from extender.runtime.near_names import did_you_mean

T = TypeVar("T")

_RESOURCES = {resource.value.rpartition("/")[2]: resource for resource in Resource if resource is not Resource.WILDCARD}
_ACTIONS = {"".join(map(str.title, name.split("_"))): action for name, action in Action.__members__.items()}
P = ParamSpec("P")
R = TypeVar("R")
_PLAIN, _THREE = 2, 3
_LAZY = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def interests_of(woken_by: Mapping[str, str] | None) -> Interests:
    """Returns the events as a queue reads them; None: any event.

    Args:
        woken_by: resource -> actions, in upstream's words: {"Node": "Add|UpdateNodeLabel", "AssignedPod": "Delete"}.

    Raises:
        TypeError: a word is none of upstream's EventResource and ActionType.
    """
    if woken_by is None:
        return EVERYTHING
    return Interests(tuple(Interest(_known(_RESOURCES, name), _actions(actions)) for name, actions in woken_by.items()))


def _actions(text: str) -> Action:
    actions = Action(0)
    for name in text.split("|"):
        actions |= _known(_ACTIONS, name.strip())
    return actions


def _known(words: Mapping[str, T], word: str) -> T:
    if word in words:
        return words[word]
    raise TypeError(f"woken_by: there is no {word!r}{did_you_mean(word, words)}")


class RuleFunction(Generic[P, R]):
    """A function made a rule by a decorator; called, it is that function still.

    Attributes:
        columns: it takes three positional parameters, not (pod, node).
        arguments: the model of its arguments.
    """

    forms = "(pod, node) or (pod, table, rows)"

    def __init__(self, function: Callable[P, R]) -> None:
        """Raises TypeError where the function, which may be anything that can be called, has the form of no rule."""
        parameters = list(inspect.signature(function).parameters.values())
        self.function, plain = function, _plain(function)
        self.__name__, self.__module__, self.__doc__ = plain.__name__, plain.__module__, plain.__doc__
        self.columns = _takes_three(plain.__qualname__, parameters, self.forms)
        _refuse_lazy(plain.__qualname__, function)
        self.arguments = _model(plain, [p for p in parameters if p.kind is p.KEYWORD_ONLY])

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.__module__}:{self.__name__}>"


@dataclass(frozen=True, slots=True)
class BoundFunction:
    """A rule's function with the arguments that the policy gave."""

    function: Callable[..., object]
    arguments: Mapping[str, object]

    def __call__(self, *inputs: object) -> object:
        return self.function(*inputs, **self.arguments)


def _plain(function: Callable[..., object]) -> Any:
    """Returns what has a name: the function within a partial or a wrapper, or the class of an object."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    return function if hasattr(function, "__qualname__") else type(function)


def file_of(function: Callable[..., object]) -> str:
    """Returns the file that the function, or the class of the object, stands in; empty where there is none."""
    with suppress(TypeError, OSError):
        return inspect.getsourcefile(_plain(function)) or ""
    return ""


def _takes_three(name: str, parameters: list[inspect.Parameter], forms: str) -> bool:
    positional = sum(parameter.kind in _POSITIONAL for parameter in parameters)
    variadic = any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in parameters)
    if variadic or positional not in (_PLAIN, _THREE):
        raise TypeError(
            f"{name} must take {forms}, and its own arguments by keyword: def rule(pod, node, *, watts: int = 500)"
        )
    return positional == _THREE


def _refuse_lazy(name: str, function: Callable[..., object]) -> None:
    known = inspect.isroutine(function) or isinstance(function, partial)
    called = function if known else type(function).__call__
    if any(is_lazy(called) for is_lazy in _LAZY):
        raise TypeError(f"{name} must return its answer: a rule is no async function, and yields nothing")


def _model(function: Callable[..., object], parameters: list[inspect.Parameter]) -> type[BaseModel]:
    """Only these parameters' annotations are looked up: those of pod and node may be there for type checkers alone."""
    annotations = {each.name: Any if each.annotation is each.empty else each.annotation for each in parameters}
    known = getattr(function.__call__ if inspect.isclass(function) else function, "__globals__", {})
    types = get_type_hints(SimpleNamespace(__annotations__=annotations), known, include_extras=True)
    fields: dict[str, Any] = {
        each.name: (types[each.name], ... if each.default is each.empty else each.default) for each in parameters
    }
    config = ConfigDict(extra="forbid", strict=True, protected_namespaces=(), arbitrary_types_allowed=True)
    return create_model(function.__name__, __config__=config, **fields)
