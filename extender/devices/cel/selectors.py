"""Whether a device matches a CEL expression.

An expression is evaluated once for all devices that are alike in what it reads of them; what came out is kept with
each device too, so that asking again costs one look-up.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import lru_cache

import msgspec

from extender.devices.cel.expressions import Evaluate, EvaluationError, SelectorError
from extender.devices.cel.values import PoolDevice

Verdict = bool | str  # whether it matches, or why it cannot be told

_KEPT = 65536
_KEY_HINT = (
    "consider using CEL optional chaining (.? followed by orValue())"
    " or guarding the check with has() for optional fields"
)
# What expressions usually read: device.attributes["domain"].name, device.capacity["domain"].?name
_READ = re.compile(
    r"""\bdevice\.(attributes|capacity)\[\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*\]\s*\.\??\s*(\w+)\b(?!\s*\()"""
)
_READ_WHOLE = re.compile(r"\bdevice\.(?:driver|allowMultipleAllocations)\b")


def matches(expression: str, device: PoolDevice) -> bool:
    """Whether the device matches.

    Raises:
        SelectorError: the expression is wrong, or fails for this device.
    """
    verdict = device.verdicts.get(expression)
    if verdict is None:
        verdict = device.verdicts[expression] = _selector(expression).verdict(device)
    if isinstance(verdict, str):
        raise SelectorError(verdict, at_run_time=True)
    return verdict


class _Selector:
    """An expression with what came out of it, by what it reads of a device."""

    def __init__(self, expression: str, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._reads = _reads(expression)
        self._verdicts: dict[Hashable, Verdict] = {}

    def verdict(self, device: PoolDevice) -> Verdict:
        key = self._key(device)
        verdict = self._verdicts.get(key)
        if verdict is None:
            if len(self._verdicts) >= _KEPT:
                self._verdicts.clear()
            verdict = self._verdicts[key] = self._find(device)
        return verdict

    def _key(self, device: PoolDevice) -> Hashable:
        spec, driver = device.spec, device.id.driver
        if self._reads is None or device.fault:
            told = (spec.attributes, spec.capacity, spec.allow_multiple_allocations)
            return driver, msgspec.json.encode(told, order="deterministic")
        attributes, capacity = spec.attributes or {}, spec.capacity or {}
        return (
            driver,
            spec.allow_multiple_allocations,
            *(attributes.get(name) for domain, name in self._reads[0] if domain in (None, driver)),
            *(
                capacity.get(name) and str(capacity[name].value)
                for domain, name in self._reads[1]
                if domain in (None, driver)
            ),
        )

    def _find(self, device: PoolDevice) -> Verdict:
        try:
            if device.fault:
                raise EvaluationError(device.fault)
            return self._evaluate(device)
        except EvaluationError as error:
            message = str(error)
            return f"{message}. {_KEY_HINT}" if "no such key:" in message else message


Names = tuple[tuple[str | None, str], ...]  # (driver that may leave the domain out, name); None: any driver


def _reads(expression: str) -> tuple[Names, Names] | None:
    """The names of the attributes and of the capacities that it reads; None if that cannot be told."""
    rest = _READ_WHOLE.sub("", _READ.sub("", expression))
    if re.search(r"\bdevice\b", rest):
        return None
    names: dict[str, list[tuple[str | None, str]]] = {"attributes": [], "capacity": []}
    for kind, double_quoted, single_quoted, identifier in _READ.findall(expression):
        domain = double_quoted or single_quoted
        names[kind] += [(None, f"{domain}/{identifier}"), (domain, identifier)]
    return tuple(names["attributes"]), tuple(names["capacity"])


@lru_cache(maxsize=1024)
def _selector(expression: str) -> _Selector:
    try:
        from extender.devices.cel import compiler as cel
    except ImportError:
        hint = "device selectors need the package cel-expr-python: pip install 'extender[cel]'"
        raise SelectorError(hint, at_run_time=False) from None
    return _Selector(expression, cel.compiled(expression))
