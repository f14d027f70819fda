"""Lists all functions of CEL by name, and the costs of their calls.

It also defines the functions of quantities, versions, addresses, URLs and regular expressions. Regular expressions are
matched in linear time by RE2, whose syntax and results CEL asks for; so does Go's regexp. The author of a claim writes
the expression, and matching with Python's `re` may take exponential time.

Source: k8s.io/apiserver/pkg/cel/library. Source of the costs: cel-go interpreter/runtimecost.go and cost.go.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from ipaddress import ip_address, ip_interface, ip_network
from itertools import islice, product
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote

import re2

from extender.devices.cel.format import FORMAT_FUNCTIONS, parse_url
from extender.devices.cel.functions import FUNCTIONS, LIST_FUNCTIONS, MAX_LENGTH, fail, order, parsed
from extender.devices.cel.values import (
    MAX_COST,
    TIME_FUNCTIONS,
    CostBudget,
    EvaluationError,
    OptionalValue,
    Quantity,
    Semver,
    attempt,
)

_CHARACTERS, _PATTERN_CHARACTERS = 10, 4  # 10 characters of a value, or 4 of a pattern, cost one unit
_FLAT = frozenset(("[]", "[?]", "size", "type", "dyn", "first", "last", "or", "orValue", "hasValue", "value"))
_EACH_BY_EACH = frozenset(("distinct", "sets.contains", "sets.equivalent", "sets.intersects"))
_SEARCHES = frozenset(("matches", "find", "findAll"))
_WRITERS = frozenset(("join", "format", "strings.quote"))


def spend_on_call(budget: CostBudget, name: str, values: Sequence[Any]) -> None:
    """Subtracts the cost of calling the function `name` with `values` from the budget."""
    budget.spend()
    if name in _FLAT:
        return
    sizes = [_size(value, budget.left) for value in values]
    if name in _EACH_BY_EACH:
        budget.spend(sizes[0] * sizes[-1])
    elif name in _SEARCHES:  # as upstream, the text times the pattern
        budget.spend((sizes[0] + 1) * _CHARACTERS * (sizes[1] * _CHARACTERS // _PATTERN_CHARACTERS + 1))
    else:
        size = sum(sizes)
        budget.spend(MAX_COST if name in _WRITERS and size > MAX_LENGTH // _CHARACTERS else size)


def _size(value: Any, most: int) -> int:
    """Returns the cost of reading a value with all nested values; stops counting once the cost exceeds `most`."""
    size = 0
    pending = [value]
    while pending and size <= most:
        part = pending.pop()
        if isinstance(part, str | bytes):
            size += len(part) // _CHARACTERS
        elif isinstance(part, list | dict):
            size += len(part)
            pending.extend(part.values() if isinstance(part, dict) else part)
        elif isinstance(part, OptionalValue):
            pending.append(part.value)
    return size


Type = str
_SIGNATURE = re.compile(r"(?:(\S+)::)?([^\s(]+)\((.*)\) (\S+)")


class Overload(NamedTuple):
    """One variant of a function, with one list of parameter types. The first parameter of a method is its receiver."""

    name: str
    method: bool
    parameters: tuple[Type, ...]
    result: Type
    function: Callable[..., Any]

    def __str__(self) -> str:
        receiver, rest = (f"{self.parameters[0]}.", self.parameters[1:]) if self.method else ("", self.parameters)
        return f"{receiver}{self.name}({', '.join(rest)}) {self.result}"


def _ip(text: str) -> Any:
    address = attempt(ip_address, text)
    return None if address is None or getattr(address, "ipv4_mapped", None) or "%" in text else address


def _cidr(text: str) -> Any:
    address, slash, length = text.partition("/")
    return attempt(ip_interface, text) if slash and re.fullmatch(r"0|[1-9]\d*", length) and _ip(address) else None


def _contains_cidr(network: Any, other: Any) -> bool:
    inner = parsed("CIDR", _cidr(other)) if isinstance(other, str) else other
    return inner.version == network.version and bool(inner.network.subnet_of(network.network))


def _contains_ip(network: Any, address: Any) -> bool:
    return (parsed("IP", _ip(address)) if isinstance(address, str) else address) in network.network


def _with_regex(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda text, pattern, *rest: function(compiled(pattern), text, *rest)


_LIBRARIES: dict[str, Callable[..., Any]] = {
    "string::matches(string) bool": _with_regex(lambda pattern, text: pattern.find(text) is not None),
    "matches(string, string) bool": _with_regex(lambda pattern, text: pattern.find(text) is not None),
    "string::find(string) string": _with_regex(lambda pattern, text: pattern.find(text) or ""),
    "string::findAll(string, int?) list(string)": _with_regex(lambda pattern, text, n=-1: pattern.find_all(text, n)),
    "string(IP|CIDR) string": str,
    "quantity(string) Quantity": lambda text: parsed("quantity", Quantity.parse(text)),
    "isQuantity(string) bool": lambda text: Quantity.parse(text) is not None,
    "sign(Quantity) int": lambda quantity: order(quantity.nanos, 0),
    "Quantity::isGreaterThan(Quantity) bool": lambda left, right: left.nanos > right.nanos,
    "Quantity::isLessThan(Quantity) bool": lambda left, right: left.nanos < right.nanos,
    "Quantity::compareTo(Quantity) int": lambda left, right: order(left.nanos, right.nanos),
    "Quantity::asApproximateFloat() double": Quantity.approximate_float,
    "Quantity::asInteger() int": lambda quantity: (
        fail("cannot convert value to integer") if quantity.integer() is None else quantity.integer()
    ),
    "Quantity::isInteger() bool": lambda quantity: quantity.integer() is not None,
    "Quantity::add(Quantity|int) Quantity": Quantity.plus,
    "Quantity::sub(Quantity|int) Quantity": lambda left, right: left.plus(right, -1),
    "semver(string, bool?) Semver": lambda text, *normalize: parsed("semver", Semver.parse(text, *normalize)),
    "isSemver(string, bool?) bool": lambda text, *normalize: Semver.parse(text, *normalize) is not None,
    "Semver::isGreaterThan(Semver) bool": operator.gt,
    "Semver::isLessThan(Semver) bool": operator.lt,
    "Semver::compareTo(Semver) int": order,
    **{f"Semver::{name}() int": lambda v, at=at: v.release[at] for at, name in enumerate(("major", "minor", "patch"))},
    "ip(string) IP": lambda text: parsed("IP Address", _ip(text)),
    "isIP(string) bool": lambda text: _ip(text) is not None,
    "ip.isCanonical(string) bool": lambda text: str(parsed("IP Address", _ip(text))) == text,
    "IP::family() int": lambda address: address.version,
    "IP::isUnspecified() bool": lambda address: address.is_unspecified,
    "IP::isLoopback() bool": lambda address: address.is_loopback,
    "IP::isLinkLocalMulticast() bool": lambda a: a in ip_network("224.0.0.0/24" if a.version == 4 else "ff02::/16"),
    "IP::isLinkLocalUnicast() bool": lambda address: address.is_link_local,
    "IP::isGlobalUnicast() bool": lambda a: (
        not (a.is_unspecified or a.is_loopback or a.is_multicast or a.is_link_local or str(a) == "255.255.255.255")
    ),
    "cidr(string) CIDR": lambda text: parsed("network address", _cidr(text)),
    "isCIDR(string) bool": lambda text: _cidr(text) is not None,
    "CIDR::containsIP(string|IP) bool": _contains_ip,
    "CIDR::containsCIDR(string|CIDR) bool": _contains_cidr,
    "CIDR::ip() IP": lambda network: network.ip,
    "CIDR::prefixLength() int": lambda network: network.network.prefixlen,
    "CIDR::masked() CIDR": lambda network: ip_interface(network.network),
    "url(string) URL": lambda text: parsed("URL", parse_url(text)),
    "isURL(string) bool": lambda text: parse_url(text) is not None,
    "URL::getScheme() string": lambda value: value.scheme,
    "URL::getHost() string": lambda value: value.netloc.rpartition("@")[2],
    "URL::getHostname() string": lambda value: re.sub(r":\d*$", "", value.netloc.rpartition("@")[2]).strip("[]"),
    "URL::getPort() string": lambda value: str(value.port or ""),
    "URL::getEscapedPath() string": lambda value: quote(value.path, safe="%/:@!$&'()*+,;=-._~"),
    "URL::getQuery() map(string,list(string))": lambda value: parse_qs(value.query, keep_blank_values=True),
}


def _overloads(signature: str, function: Callable[..., Any]) -> Iterator[Overload]:
    match = _SIGNATURE.fullmatch(signature)
    assert match is not None, signature
    parameters = list(filter(None, (match[1], *(match[3].split(", ")))))
    for form in (parameters[:-1], parameters) if match[3].endswith("?") else (parameters,):
        for kinds in product(*(parameter.removesuffix("?").split("|") for parameter in form)):
            yield Overload(match[2], match[1] is not None, kinds, match[4], function)


OVERLOADS: dict[tuple[str, bool], list[Overload]] = {}
for _signature, _implementation in {
    **FUNCTIONS,
    **LIST_FUNCTIONS,
    **TIME_FUNCTIONS,
    **FORMAT_FUNCTIONS,
    **_LIBRARIES,
}.items():
    for _each in _overloads(_signature, _implementation):
        OVERLOADS.setdefault((_each.name, _each.method), []).append(_each)


MAX_STEPS = 5_000_000  # of one call, at most a tenth of a second
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


class Pattern:
    """A compiled regular expression.

    Its methods raise EvaluationError if the search may take more than MAX_STEPS steps.
    """

    def __init__(self, text: str) -> None:
        if r"\C" in text.replace(r"\\", ""):  # a single byte, which Go does not support
            raise re2.error(rb"invalid escape sequence: \C")
        self._compiled = re2.compile(_valid(text), _OPTIONS)

    def find(self, text: str) -> str | None:
        """Returns the first match; None if there is no match."""
        return next(self._matches(text), None)

    def find_all(self, text: str, most: int) -> list[str]:
        """Returns the texts of non-overlapping matches: at most `most`, or all if `most` is negative."""
        return list(islice(self._matches(text), None if most < 0 else most))

    def _matches(self, text: str) -> Iterator[str]:
        valid = _valid(text)
        steps, begin, last_end = 0, 0, -1
        matches = self._compiled.finditer(valid)
        while True:
            steps += self._compiled.programsize * (len(valid) - begin)
            if steps > MAX_STEPS:
                raise EvaluationError("operation cancelled: actual cost limit exceeded")
            match = next(matches, None)
            if match is None:
                return
            begin, end = match.span()
            if begin < end or begin != last_end:  # an empty match directly after another match is skipped, as in Go
                yield match[0]
            last_end = end


def _valid(text: str) -> str:
    return text.encode(errors="replace").decode()  # a YAML file may hold half of a surrogate pair


@lru_cache(maxsize=256)
def compiled(text: str) -> Pattern:
    """Returns the compiled pattern. Raises EvaluationError if RE2 would reject the pattern."""
    try:
        return Pattern(text)
    except re2.error as failure:
        raise EvaluationError(f"Illegal regex: {failure.args[0].decode(errors='replace')}") from None
