"""CEL as the API defines it for device selectors. The only importer of cel_expr_python, which is an optional extra.

Quantities and versions are opaque to CEL: they travel as bytes, a tag and a canonical text, so that equal ones are
equal (`cel_types`). `device` is not typed: what upstream finds wrong when it compiles is found here when a device is
looked at. Source: k8s.io/dynamic-resource-allocation/cel, k8s.io/apiserver/pkg/cel/library. Left out of the library:
lists, sets, find, URLs, IP addresses, named formats; an expression that uses them is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

from extender.devices.cel import types as cel_types
from extender.devices.cel.expressions import Evaluate, EvaluationError, SelectorError
from extender.devices.cel.values import PoolDevice
from extender.model.devices.slices import DeviceAttribute

BOOL, BYTES, DOUBLE, INT, STRING = cel.Type.BOOL, cel.Type.BYTES, cel.Type.DOUBLE, cel.Type.INT, cel.Type.STRING

# A domain that a device says nothing about is an empty map when it is looked up, but not a member of the map of
# domains. So look-ups are sent to a second map, which has all domains that the expression names.
_LOOK_UP = re.compile(r"\bdevice\s*\.\s*(attributes|capacity)(?=\s*\[|\s*\.\s*\w+\b(?!\s*\())")
_DOMAINS = re.compile(r"\"([^\"\\]*)\"|'([^'\\]*)'|\.\s*(\w+)")
_NO_SUCH_KEY = re.compile(r'NOT_FOUND: Key not found in map : "?([^"]*)"?')
_STATUS = re.compile(r"^[A-Z_]+: ")


def compiled(expression: str) -> Evaluate:
    """A selector as a function of a device.

    Raises:
        SelectorError: it is no expression, or its value is no boolean.
    """
    try:
        program = _ENVIRONMENT.compile(_LOOK_UP.sub(r"device.\1ByDomain", expression))
    except RuntimeError as error:
        text = _STATUS.sub("", str(error).partition(" [")[0])
        raise SelectorError(f"compilation failed: {text}", at_run_time=False) from None
    if program.return_type() not in (BOOL, cel.Type.DYN):
        kind = program.return_type().name().lower()
        raise SelectorError(f"must evaluate to bool or the unknown type, not {kind}", at_run_time=False)
    domains = {next(filter(None, groups), "") for groups in _DOMAINS.findall(expression)}

    def evaluate(device: PoolDevice) -> bool:
        return _bool(program.eval(data={"device": _variables(device, domains)}))

    return evaluate


def _bool(result: cel.Value) -> bool:
    value, kind = result.value(), result.type().name()
    if kind == "ERROR":
        raise EvaluationError(_error_text(str(value)))
    if not isinstance(value, bool):
        kind = kind.lower()
        conversion = f"unsupported native conversion from {kind} to 'bool'"
        raise EvaluationError(f"CEL result of type {kind} could not be converted to bool: {conversion}")
    return value


def _error_text(error: str) -> str:
    missing = _NO_SUCH_KEY.match(error)
    if missing:
        return f"no such key: {missing[1]}"
    return "no such overload" if "No matching overloads" in error else _STATUS.sub("", error)


def _variables(device: PoolDevice, domains: set[str]) -> dict[str, Any]:
    driver = device.id.driver
    attributes = {name: _native(attribute) for name, attribute in (device.spec.attributes or {}).items()}
    capacity = {name: cel_types.quantity(str(offered.value)) for name, offered in (device.spec.capacity or {}).items()}
    named: dict[str, dict[str, Any]] = {domain: {} for domain in (*domains, driver)}
    by_domain = _by_domain(attributes, driver), _by_domain(capacity, driver)
    return {
        "driver": driver,
        "allowMultipleAllocations": device.shareable,
        "attributes": by_domain[0],
        "capacity": by_domain[1],
        "attributesByDomain": named | by_domain[0],
        "capacityByDomain": named | by_domain[1],
    }


def _by_domain(values: Mapping[str, Any], driver: str) -> dict[str, dict[str, Any]]:
    by_domain: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        domain, slash, identifier = name.partition("/")
        by_domain.setdefault(domain if slash else driver, {})[identifier if slash else name] = value
    return by_domain


def _native(attribute: DeviceAttribute) -> object:
    if attribute.version_value is not None:
        return cel_types.semver(attribute.version_value)
    values = (attribute.int_value, attribute.bool_value, attribute.string_value)
    return next(value for value in values if value is not None)


def _overload(name: str, result: cel.Type, implementation: Any, *parameters: cel.Type, member: bool) -> cel.Overload:
    overload_id = "_".join((name, "member" if member else "global", *(parameter.name() for parameter in parameters)))
    return cel.Overload(overload_id, result, list(parameters), member, implementation)


def _function(name: str, *overloads: cel.Overload) -> cel.FunctionDecl:
    return cel.FunctionDecl(name, list(overloads))


def _member(name: str, result: cel.Type, implementation: Any, *parameters: cel.Type) -> cel.FunctionDecl:
    return _function(name, _overload(name, result, implementation, *parameters, member=True))


def _global(name: str, result: cel.Type, implementation: Any, *parameters: tuple[cel.Type, ...]) -> cel.FunctionDecl:
    return _function(name, *(_overload(name, result, implementation, *each, member=False) for each in parameters))


_FUNCTIONS = [
    _global("quantity", BYTES, cel_types.quantity, (STRING,)),
    _global("isQuantity", BOOL, cel_types.is_quantity, (STRING,)),
    _global("semver", BYTES, cel_types.semver, (STRING,), (STRING, BOOL)),
    _global("isSemver", BOOL, cel_types.is_semver, (STRING,), (STRING, BOOL)),
    _global("sign", INT, cel_types.sign, (BYTES,)),
    _member("compareTo", INT, cel_types.compare, BYTES, BYTES),
    _member("isGreaterThan", BOOL, lambda left, right: cel_types.compare(left, right) > 0, BYTES, BYTES),
    _member("isLessThan", BOOL, lambda left, right: cel_types.compare(left, right) < 0, BYTES, BYTES),
    _member("asInteger", INT, cel_types.as_integer, BYTES),
    _member("isInteger", BOOL, cel_types.is_integer, BYTES),
    _member("asApproximateFloat", DOUBLE, cel_types.as_float, BYTES),
    _member("major", INT, cel_types.major, BYTES),
    _member("minor", INT, cel_types.minor, BYTES),
    _member("patch", INT, cel_types.patch, BYTES),
    *(
        _function(
            name,
            _overload(name, BYTES, implementation, BYTES, BYTES, member=True),
            _overload(name, BYTES, implementation, BYTES, INT, member=True),
        )
        for name, implementation in (("add", cel_types.add), ("sub", cel_types.subtract))
    ),
]
_ENVIRONMENT = cel.NewEnv(
    variables={"device": cel.Type.DYN},
    extensions=[ext_optional.ExtOptional(), ext_bindings.ExtBindings(), ext_strings.ExtStrings()],
    functions=_FUNCTIONS,
)
