"""Evaluates the CEL selectors of devices, once for all devices with the same relevant attributes.

Each selector is compiled once. A verdict is the result of a selector for a device. Each device stores its verdicts, one
byte for each selector, so that repeating an evaluation costs two look-ups.

Source: k8s.io/dynamic-resource-allocation/cel, compile.go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from hashlib import blake2b
from itertools import count, starmap
from typing import Any

import msgspec

from extender.devices.cel import syntax
from extender.devices.cel.program import Compiler, Evaluate, evaluated
from extender.devices.cel.syntax import CompileError, Node
from extender.devices.cel.values import EvaluationError, Quantity, Semver, type_name
from extender.devices.inventory import PoolDevice
from extender.model.devices import DeviceAttribute
from extender.runtime.clock import NO_DEADLINE, Deadline

Verdict = bool | str
"""The result of a selector for a device: True if it matches, False if not, a text if the evaluation fails."""

# Anyone who can create a claim can write expressions, so the caches have limits.
_MAX_SELECTORS, _MAX_CHARACTERS = 4096, 4 * 1024 * 1024
_MAX_VERDICTS = 65536
_UNKNOWN, _NO_MATCH, _MATCH, _FAILED = range(4)  # a device stores one of these bytes for each selector
_KEY_HINT = (
    "consider using CEL optional chaining (.? followed by orValue())"
    " or guarding the check with has() for optional fields"
)
_DEVICE = {
    "driver": "string",
    "allowMultipleAllocations": "bool",
    "attributes": "map(string,map(string,dyn))",
    "capacity": "map(string,map(string,Quantity))",
}
_COMPILER = Compiler({"kubernetes.DRADevice": _DEVICE})
_SCOPE = {"device": "kubernetes.DRADevice"}


class SelectorError(Exception):
    """Raised for an expression that cannot be compiled, or fails for a device; the message says why."""

    def __init__(self, message: str, *, at_run_time: bool) -> None:
        super().__init__(f"CEL {'runtime' if at_run_time else 'compile'} error: {message}")
        self.at_run_time = at_run_time


class _ByDomain(dict[str, Mapping[str, Any]]):
    """The attributes or capacities of a device, by domain and name. A missing domain counts as an empty mapping."""

    def __missing__(self, domain: str) -> Mapping[str, Any]:
        return {}


def matches(expression: str, device: PoolDevice, deadline: Deadline = NO_DEADLINE) -> bool:
    """Returns True if the device matches the expression.

    Raises:
        SelectorError: the expression is invalid, or fails for this device.
        DeadlineExceeded: the decision's deadline has passed.
    """
    selector = _compiled(expression)
    verdicts = device.verdicts_of(selector.cache)
    if selector.number >= len(verdicts):
        verdicts.extend(bytes(selector.number + 1 - len(verdicts)))
    code = verdicts[selector.number]
    if code in (_MATCH, _NO_MATCH):
        return code == _MATCH
    verdict = selector.verdict(device, deadline)
    if isinstance(verdict, str):
        verdicts[selector.number] = _FAILED
        raise SelectorError(verdict, at_run_time=True)
    verdicts[selector.number] = _MATCH if verdict else _NO_MATCH
    return verdict


def matching(expression: str, devices: Iterable[PoolDevice], deadline: Deadline) -> list[PoolDevice] | None:
    """Returns the devices that match the expression; None if it is invalid, or fails for one of them."""
    try:
        return [device for device in devices if matches(expression, device, deadline)]
    except SelectorError:
        return None


def kind_reader(expression: str) -> tuple[Hashable, Callable[[PoolDevice], Hashable]]:
    """Returns a function that gives devices equal keys if no selector with these reads can tell them apart.

    The first value identifies the function: it is equal for selectors that read the same values of a device.

    Raises:
        SelectorError: the expression is invalid.
    """
    reads = _compiled(expression).reads
    return reads, partial(_values_read, reads)


def compilation_fault(expression: str) -> str | None:
    """Returns why the expression is not a valid selector; None if it is valid."""
    try:
        _compiled(expression)
    except SelectorError as error:
        return str(error)
    return None


class _SelectorCache:
    """Stores the compiled selectors, each with a number. A full cache is replaced by an empty one.

    Attributes:
        selectors: the compiled selectors, by expression.
        numbers: yields the number of the next selector.
        characters: the total length of all expressions.
        verdicts: the known verdicts, by the number of the selector and the device's values that it reads.
    """

    def __init__(self) -> None:
        self.selectors: dict[str, _Selector] = {}
        self.numbers = count()
        self.characters = 0
        self.verdicts: dict[Hashable, Verdict] = {}


_cache = _SelectorCache()


def _compiled(expression: str) -> _Selector:
    """Returns the compiled selector, from the cache if possible. Raises SelectorError if the expression is invalid."""
    global _cache
    selector = _cache.selectors.get(expression)
    if selector is None:
        if len(_cache.selectors) >= _MAX_SELECTORS or _cache.characters > _MAX_CHARACTERS:
            _cache = _SelectorCache()
        cache = _cache
        cache.characters += len(expression)
        selector = cache.selectors.setdefault(expression, _compile(expression, cache))
    return selector


class _Selector:
    """A compiled selector. `number` identifies the selector in `cache`; `reads` are the values of a device it reads."""

    def __init__(self, evaluate: Evaluate, node: Node, cache: _SelectorCache) -> None:
        self._evaluate = evaluate
        self.reads = _reads(node)
        self.cache = cache
        self.number = next(cache.numbers)

    def verdict(self, device: PoolDevice, deadline: Deadline) -> Verdict:
        """Returns the verdict for the device.

        Devices share a verdict if they are equal in everything that the selector reads.

        Raises:
            DeadlineExceeded: the decision's deadline has passed.
        """
        verdicts, key = self.cache.verdicts, (self.number, *_values_read(self.reads, device))
        verdict = verdicts.get(key)
        if verdict is None:
            verdict = self._find(device, deadline)
            if len(verdicts) >= _MAX_VERDICTS:
                verdicts.clear()
            verdicts[key] = verdict
        return verdict

    def _find(self, device: PoolDevice, deadline: Deadline) -> Verdict:
        try:
            if fault := _fault(device):
                raise EvaluationError(fault)
            value = evaluated(self._evaluate, {"device": _variables(device)}, deadline)
        except RecursionError:
            return "expression recursion limit exceeded"
        except EvaluationError as error:
            message = str(error)
            return f"{message}. {_KEY_HINT}" if "no such key:" in message else message
        if isinstance(value, bool):
            return value
        kind = type_name(value)
        conversion = f"unsupported native conversion from {kind} to 'bool'"
        return f"CEL result of type {kind} could not be converted to bool: {conversion}"


def _values_read(reads: _Reads | None, device: PoolDevice) -> tuple[Hashable, ...]:
    """Returns everything about the device that a selector can see."""
    spec, driver = device.spec, device.id.driver
    if reads is None or _fault(device):
        seen = (spec.attributes, spec.capacity, spec.allow_multiple_allocations, device.fails_when_read)
        return driver, blake2b(msgspec.json.encode(seen, order="deterministic"), digest_size=16).digest()
    attributes, capacity = spec.attributes or {}, spec.capacity or {}
    values: list[Hashable] = [driver, spec.allow_multiple_allocations]
    for kind, domain, name in reads:
        of: Mapping[str, Any] = attributes if kind == "attributes" else capacity
        value = of.get(f"{domain}/{name}") or (of.get(name) if domain == driver else None)
        values.append(value if kind == "attributes" or value is None else str(value.value))
    return tuple(values)


def _variables(device: PoolDevice) -> dict[str, Any]:
    driver, spec = device.id.driver, device.spec
    attributes = {name: _readable(name, attribute) for name, attribute in (spec.attributes or {}).items()}
    capacity = {name: Quantity.parse(str(offered.value)) for name, offered in (spec.capacity or {}).items()}
    return {
        "driver": driver,
        "allowMultipleAllocations": device.shareable,
        "attributes": _by_domain(attributes, driver),
        "capacity": _by_domain(capacity, driver),
    }


def _by_domain(values: Mapping[str, Any], driver: str) -> _ByDomain:
    by_domain = _ByDomain()
    for qualified, value in values.items():
        domain, slash, name = qualified.rpartition("/")
        by_domain.setdefault(domain if slash else driver, _Values())[name] = value  # type: ignore[index] # every value is a dict from this line
    return by_domain


class _Unreadable(str):
    """Takes the place of a value that cannot be used: the error of what reads it."""


class _Values(dict[str, Any]):
    """The values of one domain, by name. To read an _Unreadable raises EvaluationError."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if isinstance(value, _Unreadable):
            raise EvaluationError(str(value))
        return value


def _readable(name: str, attribute: DeviceAttribute) -> Any:
    fault = _fault_of(name, attribute)
    if not fault:
        return _native(attribute)
    return _Unreadable(f"attribute {name}: value is invalid or its type is not supported by this version")


def _fault(device: PoolDevice) -> str:
    if device.fault is None:
        device.fault = next(filter(None, starmap(_fault_of, (device.spec.attributes or {}).items())), "")
    return device.fault


def _fault_of(name: str, attribute: DeviceAttribute) -> str:
    """Returns why the attribute has no value; "" if it has one."""
    versions = attribute.version_values or (attribute.version_value,)
    wrong = next((version for version in versions if version is not None and Semver.parse(version) is None), None)
    if wrong is not None:
        return f"attribute {name}: parse semantic version: {wrong!r} is not one"
    if attribute.values is not None or attribute.version_value is not None:
        return ""
    if (attribute.int_value, attribute.bool_value, attribute.string_value) == (None, None, None):
        return f"attribute {name}: unsupported attribute value"
    return ""


def _native(attribute: DeviceAttribute) -> Any:
    if attribute.values is not None:
        return (
            [Semver.parse(str(each)) for each in attribute.values] if attribute.version_values else [*attribute.values]
        )
    if attribute.version_value is not None:
        return Semver.parse(attribute.version_value)
    values = (attribute.int_value, attribute.bool_value, attribute.string_value)
    return next(value for value in values if value is not None)


_Reads = frozenset[tuple[str, str, str]]
"""The values of a device that a selector reads, as ("attributes" or "capacity", domain, name)."""


def _reads(node: Node) -> _Reads | None:
    """Returns the values that an expression reads; None if it computes names, so that it may read any value."""
    match node:
        case syntax.IdentNode(name):
            return None if name == "device" else frozenset()
        case syntax.SelectNode(syntax.IdentNode("device"), "driver" | "allowMultipleAllocations"):
            return frozenset()  # these two fields are always part of the cache key
        case syntax.SelectNode(operand, name):
            domain = _domain(operand)
            return _reads(operand) if domain is None else frozenset(((*domain, name),))
    reads: set[tuple[str, str, str]] = set()
    for child in _children(node):
        of_child = _reads(child)
        if of_child is None:
            return None
        reads |= of_child
    return frozenset(reads)


def _domain(node: Node) -> tuple[str, str] | None:
    """Returns ("attributes" or "capacity", domain) for an expression like `device.attributes["domain"]`, else None."""
    match node:
        case syntax.CallNode(
            "[]" | "[?]",
            (
                syntax.SelectNode(syntax.IdentNode("device"), "attributes" | "capacity" as kind),
                syntax.LiteralNode(str(domain)),
            ),
        ):
            return kind, domain
    return None


def _children(node: Node) -> Iterator[Node]:
    match node:
        case syntax.CallNode(_, args, target):
            yield from args if target is None else (target, *args)
        case syntax.ListNode(elements):
            yield from elements
        case syntax.MapNode(entries):
            yield from (child for entry in entries for child in entry)
        case syntax.BindNode(_, _, value, body):
            yield from (value, body)
        case syntax.ComprehensionNode(_, over, _, bodies):
            yield from (over, *bodies)


def _compile(expression: str, cache: _SelectorCache) -> _Selector:
    try:
        node = syntax.parse(expression)
        evaluate, kind = _COMPILER.compile(node, _SCOPE)
    except (CompileError, RecursionError) as error:
        raise SelectorError(f"compilation failed: ERROR: {error}", at_run_time=False) from None
    if kind not in ("bool", "dyn"):
        raise SelectorError(f"must evaluate to bool or the unknown type, not {kind}", at_run_time=False)
    return _Selector(evaluate, node, cache)
