"""Parses CEL into a syntax tree, with one class for each kind of node, and expands its macros.

Source: cel-spec, cel-go parser and macros.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from extender.devices.cel.values import Uint

ItemT = TypeVar("ItemT")
MAX_DEPTH = 250


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


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


_STRING = r"""(?:"{3}(?:\\.|[^\\])*?"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
_RAW = r"""(?:"{3}.*?"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')"""
_TOKEN = re.compile(
    rf"""(?P<space>[\s]+|//[^\n]*)
    |(?P<raw>(?:[rR][bB]?|[bB][rR]){_RAW})|(?P<string>[bB]?{_STRING})
    |(?P<float>(?:\d+\.\d+|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<int>0[xX][0-9a-fA-F]+[uU]?|\d+[uU]?)|(?P<ident>[A-Za-z_]\w*|`[\w.\-/ ]+`)
    |(?P<symbol>&&|\|\||[<>=!]=|\.\?|\[\?|[-+*/%<>!?:.,()\[\]{{}}])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|X([0-9a-fA-F]{2})|(.))", re.S
)
_ESCAPED = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)) | {mark: mark for mark in "\\'\"`?"}
_MOST_DIGITS = 20  # of a number that may be in range
_LITERALS = {"true": True, "false": False, "null": None}
_RESERVED = frozenset(("as", "break", "const", "continue", "else", "for", "function", "if", "import", "in"))
_RESERVED |= frozenset(("let", "loop", "package", "namespace", "return", "var", "void", "while"))
_RELATIONS = frozenset(("<", "<=", ">", ">=", "==", "!=", "in"))
# macro -> {number of arguments: how many of them are variables}
_COMPREHENSIONS = {
    "all": {2: 1, 3: 2},
    "exists": {2: 1, 3: 2},
    "exists_one": {2: 1, 3: 2},
    "existsOne": {3: 2},
    "map": {2: 1, 3: 1},
    "filter": {2: 1},
    "sortBy": {2: 1},
    "transformList": {3: 2, 4: 2},
    "transformMap": {3: 2, 4: 2},
    "transformMapEntry": {3: 2, 4: 2},
}


def parse(expression: str) -> Node:
    """Returns the syntax tree of an expression. Raises CompileError if it is invalid."""
    parser = _Parser(_tokens(expression))
    node = parser.expression()
    parser.expect("")
    return node


def _tokens(text: str) -> list[_Token]:
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise CompileError(
                f"syntax error: token recognition error at position {position}: {text[position:][:20]!r}"
            )
        if match.lastgroup != "space":
            tokens.append(_Token(match.lastgroup or "", match[0], position))
        position = match.end()
    return [*tokens, _Token("end", "", position)]


class _Parser:
    """A recursive-descent parser with one method for each level of precedence."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0

    def expression(self) -> Node:
        self._enter()
        node = self._binary(0)
        if self._taken("?"):
            then = self._binary(0)
            self.expect(":")
            node = CallNode("?:", (node, then, self.expression()))
        self._depth -= 1
        return node

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CompileError(f"expression recursion limit exceeded: {MAX_DEPTH}")

    def expect(self, text: str) -> None:
        if not self._taken(text):
            raise self._error(f"expecting {text!r}" if text else "unexpected input")

    # ---- tokens

    @property
    def _token(self) -> _Token:
        return self._tokens[self._position]

    def _next(self) -> _Token:
        self._position += 1
        return self._tokens[self._position - 1]

    def _taken(self, text: str) -> bool:
        taken = self._token.kind in ("symbol", "end", "ident") and self._token.text == text
        self._position += taken
        return taken

    def _error(self, why: str) -> CompileError:
        return CompileError(f"syntax error at position {self._token.position}: {why}, found {self._token.text!r}")

    # ---- grammar

    _LEVELS = (frozenset(("||",)), frozenset(("&&",)), _RELATIONS, frozenset("+-"), frozenset("*/%"))

    def _binary(self, level: int) -> Node:
        if level == len(self._LEVELS):
            return self._unary()
        node = self._binary(level + 1)
        while self._token.kind in ("symbol", "ident") and self._token.text in self._LEVELS[level]:
            symbol = self._next().text
            right = self._binary(level + 1)
            if symbol in ("&&", "||") and isinstance(node, CallNode) and node.function == symbol:
                node = CallNode(symbol, (*node.args, right))  # a long chain becomes one node instead of a deep tree
            else:
                node = CallNode(symbol, (node, right))
        return node

    def _unary(self) -> Node:
        for symbol in ("!", "-"):
            if self._taken(symbol):
                if symbol == "-" and self._token.kind in ("int", "float"):
                    return self._member(self._number(self._next(), "-"))
                self._enter()
                node = CallNode("neg" if symbol == "-" else "!", (self._unary(),))
                self._depth -= 1
                return node
        return self._member(self._primary())

    def _member(self, node: Node) -> Node:
        while True:
            if self._taken(".?"):
                node = SelectNode(node, self._field(), optional=True)
            elif self._taken("."):
                name = self._field()
                node = _call(name, self._arguments(), node) if self._taken("(") else SelectNode(node, name)
            elif self._taken("[?") or self._taken("["):
                symbol = self._tokens[self._position - 1].text
                node = CallNode("[?]" if symbol == "[?" else "[]", (node, self.expression()))
                self.expect("]")
            else:
                return node

    def _field(self) -> str:
        token = self._next()
        if token.kind != "ident":
            self._position -= 1
            raise self._error("expecting a field name")
        return token.text.strip("`")

    def _primary(self) -> Node:
        token = self._token
        if self._taken("("):
            node = self.expression()
            self.expect(")")
            return node
        if self._taken("[?") or self._taken("["):
            return ListNode(*self._items("]", self.expression, first_optional=token.text == "[?"))
        if self._taken("{"):
            return MapNode(*self._items("}", self._entry))
        if token.kind in ("int", "float"):
            return self._number(self._next())
        if token.kind in ("string", "raw"):
            return LiteralNode(_text(self._next()))
        self._taken(".")
        if self._token.kind != "ident" or self._token.text in _RESERVED:
            raise self._error("expecting an expression")
        name = self._next().text
        if name in _LITERALS and token.kind == "ident":
            return LiteralNode(_LITERALS[name])
        return _call(name, self._arguments(), None) if self._taken("(") else IdentNode(name)

    def _number(self, token: _Token, sign: str = "") -> LiteralNode:
        text = token.text
        if token.kind == "float":
            return LiteralNode(float(sign + text))
        unsigned, base = text[-1] in "uU", 16 if "x" in text.lower() else 10
        digits = text.lower().rstrip("u").removeprefix("0x").lstrip("0") or "0"
        number = int(sign + digits, base) if len(digits) <= _MOST_DIGITS else None  # Python converts 4,300 at most
        if number is None or number not in (range(2**64) if unsigned else range(-(2**63), 2**63)):
            raise CompileError(f"invalid {'uint' if unsigned else 'int'} literal: {sign}{text}")
        return LiteralNode(Uint(number) if unsigned else number)

    def _arguments(self) -> tuple[Node, ...]:
        return self._items(")", self.expression)[0]

    def _entry(self) -> tuple[Node, Node]:
        key = self.expression()
        self.expect(":")
        return key, self.expression()

    def _items(
        self, end: str, item: Callable[[], ItemT], *, first_optional: bool = False
    ) -> tuple[tuple[ItemT, ...], frozenset[int]]:
        """Parses items up to the symbol `end`; returns them, and the indices of those marked optional."""
        items: list[ItemT] = []
        optional: set[int] = set()
        while not self._taken(end):
            if end != ")" and ((first_optional and not items) or self._taken("?")):
                optional.add(len(items))
            items.append(item())
            if not self._taken(","):
                self.expect(end)
                break
        return tuple(items), frozenset(optional)


def _text(token: _Token) -> str | bytes:
    prefix = token.text[: re.search(r"[\"']", token.text).start()].lower()  # type: ignore[union-attr] # a string token always has a quote
    quoted = token.text[len(prefix) :]
    width = 3 if len(quoted) >= 6 and quoted[:3] in ('"""', "'''") else 1
    body = quoted[width:-width]
    if "r" in prefix:
        return body.encode() if "b" in prefix else body
    if "b" in prefix:
        return _ESCAPE.sub(lambda m: _unescaped(m, octets=True), body).encode("utf-8", "surrogateescape")
    return _ESCAPE.sub(lambda m: _unescaped(m, octets=False), body)


def _unescaped(match: re.Match[str], *, octets: bool) -> str:
    *_, mark = match.groups()
    if mark is not None:
        if mark not in _ESCAPED:
            raise CompileError(f"unable to unescape string: \\{mark}")
        return _ESCAPED[mark]
    code = int(match[4], 8) if match[4] else int(next(filter(None, (match[1], match[2], match[3], match[5]))), 16)
    if octets and (match[1] or match[4] or match[5]):
        return bytes((code,)).decode("utf-8", "surrogateescape")
    if code > 0x10FFFF or code in range(0xD800, 0xE000):
        raise CompileError("unable to unescape string: invalid unicode code point")
    return chr(code)


def _call(name: str, args: tuple[Node, ...], target: Node | None) -> Node:
    """Returns a call node or, if the call is a macro, the node that the macro expands to."""
    if target is None:
        if name == "has" and len(args) == 1:
            if not isinstance(args[0], SelectNode):
                raise CompileError("invalid argument to has() macro")
            return SelectNode(args[0].operand, args[0].field, test=True, optional=args[0].optional)
        return CallNode(name, args)
    if name == "bind" and len(args) == 3 and target == IdentNode("cel"):
        return BindNode(name, _variable(args[0]), args[1], args[2])
    if name in ("optMap", "optFlatMap") and len(args) == 2:
        return BindNode(name, _variable(args[0]), target, args[1])
    if len(args) in _COMPREHENSIONS.get(name, ()):
        count = _COMPREHENSIONS[name][len(args)]
        variables = tuple(map(_variable, args[:count]))
        if len(set(variables)) < count:
            raise CompileError(f"duplicate variable name: {variables[0]}")
        return ComprehensionNode(name.replace("existsOne", "exists_one"), target, variables, args[count:])
    return CallNode(name, args, target)


def _variable(node: Node) -> str:
    if not isinstance(node, IdentNode):
        raise CompileError("argument must be a simple name")
    return node.name
