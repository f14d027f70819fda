"""The syntax tree of an expression, one class for each kind of node; and the error for invalid expressions."""

from __future__ import annotations

from dataclasses import dataclass


class CompileError(Exception):
    """An expression that is not valid CEL; the message says why."""


@dataclass(frozen=True, slots=True)
class LiteralNode:
    value: object


@dataclass(frozen=True, slots=True)
class IdentNode:
    """A variable, or the name of a type."""

    name: str


@dataclass(frozen=True, slots=True)
class SelectNode:
    """A field of an operand. `test`: whether the field is present (has). `optional`: an optional value (`.?`)."""

    operand: Node
    field: str
    test: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class CallNode:
    """A function, a method of `target`, or an operator (by its symbol)."""

    function: str
    args: tuple[Node, ...]
    target: Node | None = None


@dataclass(frozen=True, slots=True)
class ListNode:
    """A list; elements marked optional (`[?x]`) are omitted if they have no value."""

    elements: tuple[Node, ...]
    optional: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class MapNode:
    """A map; entries marked optional (`{?k: v}`) are omitted if they have no value."""

    entries: tuple[tuple[Node, Node], ...]
    optional: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ComprehensionNode:
    """A macro over a list or a map: `kind` is the macro's name, `bodies` are its arguments after the variables."""

    kind: str
    range: Node
    variables: tuple[str, ...]
    bodies: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class BindNode:
    """cel.bind, optMap and optFlatMap: `body` with a variable for `value`, or for the value inside the optional."""

    kind: str
    variable: str
    value: Node
    body: Node


Node = LiteralNode | IdentNode | SelectNode | CallNode | ListNode | MapNode | ComprehensionNode | BindNode


def qualified_name(node: Node) -> str:
    """Returns the name of an identifier with its qualifiers, `google.protobuf.Duration`; "" for other nodes."""
    match node:
        case IdentNode(name):
            return name
        case SelectNode(operand, field, test=False, optional=False):
            qualifier = qualified_name(operand)
            return f"{qualifier}.{field}" if qualifier else ""
    return ""
