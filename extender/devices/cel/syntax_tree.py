"""Defines CompileError, and the syntax tree of a CEL expression, with one class for each kind of node."""

from __future__ import annotations

from dataclasses import dataclass


class CompileError(Exception):
    """Raised for an expression that is not valid CEL; the message says why."""


@dataclass(frozen=True, slots=True)
class LiteralNode:
    value: object


@dataclass(frozen=True, slots=True)
class IdentNode:
    """A variable, or the name of a type."""

    name: str


@dataclass(frozen=True, slots=True)
class SelectNode:
    """A field of an operand.

    Attributes:
        test: the node only tests if the field is present (the macro `has`).
        optional: the result is an optional value (`.?`).
    """

    operand: Node
    field: str
    test: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class CallNode:
    """A call of a function, of a method of `target`, or of an operator. The name of an operator is its symbol."""

    function: str
    args: tuple[Node, ...]
    target: Node | None = None


@dataclass(frozen=True, slots=True)
class ListNode:
    """A list literal; elements marked optional (`[?x]`) are left out if they have no value."""

    elements: tuple[Node, ...]
    optional: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class MapNode:
    """A map literal; entries marked optional (`{?k: v}`) are left out if they have no value."""

    entries: tuple[tuple[Node, Node], ...]
    optional: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ComprehensionNode:
    """A macro over a list or a map, such as `all`.

    Attributes:
        kind: the name of the macro.
        range: the list or map.
        variables: the names of the variables for each element.
        bodies: the arguments of the macro after the variables.
    """

    kind: str
    range: Node
    variables: tuple[str, ...]
    bodies: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class BindNode:
    """A macro that evaluates `body` with a variable: cel.bind, optMap or optFlatMap.

    For cel.bind, the variable is the result of `value`. For optMap and optFlatMap, `value` gives an optional, and the
    variable is the value in this optional.
    """

    kind: str
    variable: str
    value: Node
    body: Node


Node = LiteralNode | IdentNode | SelectNode | CallNode | ListNode | MapNode | ComprehensionNode | BindNode


def qualified_name(node: Node) -> str:
    """Returns the dotted name that a syntax tree represents, like `google.protobuf.Duration`; "" for any other tree."""
    match node:
        case IdentNode(name):
            return name
        case SelectNode(operand, field, test=False, optional=False):
            qualifier = qualified_name(operand)
            return f"{qualifier}.{field}" if qualifier else ""
    return ""
