"""Whether a device matches a CEL expression: evaluated once per expression and distinct device."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from extender.engine.devices.values import DeviceValue

Evaluate = Callable[[DeviceValue], bool]

_KEY_HINT = (
    "consider using CEL optional chaining (.? followed by orValue())"
    " or guarding the check with has() for optional fields"
)


class SelectorError(Exception):
    """An expression that cannot be compiled, or evaluated for a device; the message says why."""

    def __init__(self, message: str, *, at_run_time: bool) -> None:
        super().__init__(f"CEL {'runtime' if at_run_time else 'compile'} error: {message}")
        self.at_run_time = at_run_time


class EvaluationError(Exception):
    """An expression that has no value for a device."""


def matches(expression: str, value: DeviceValue) -> bool:
    """Whether the device matches.

    Raises:
        SelectorError: the expression is wrong, or fails for this device.
    """
    verdict = value.verdicts.get(expression)
    if verdict is None:
        verdict = value.verdicts[expression] = _evaluate(expression, value)
    if isinstance(verdict, str):
        raise SelectorError(verdict, at_run_time=True)
    return verdict


def _evaluate(expression: str, value: DeviceValue) -> bool | str:
    try:
        return _compiled(expression)(value)
    except EvaluationError as error:
        message = str(error)
        return f"{message}. {_KEY_HINT}" if "no such key:" in message else message


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> Evaluate:
    try:
        from extender.engine.devices import cel
    except ImportError:
        hint = "device selectors need the package cel-expr-python: pip install 'extender[cel]'"
        raise SelectorError(hint, at_run_time=False) from None
    return cel.compiled(expression)
