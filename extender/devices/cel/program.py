"""Expressions checked and made into functions of a device. Source: cel-go checker and interpreter.

Types are text: `int`, `list(A)`, `map(string,dyn)`. What the checker cannot know is `dyn`, and checked at run time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from extender.devices.cel.functions import sorted_by
from extender.devices.cel.libraries import OVERLOADS, Overload, Type
from extender.devices.cel.syntax import (
    Bind,
    Call,
    CompileError,
    Comprehension,
    Ident,
    ListOf,
    Literal,
    MapOf,
    Node,
    Select,
)
from extender.devices.cel.values import (
    NO_OVERLOAD,
    NONE,
    OPAQUE,
    TYPES,
    EvaluationError,
    OptionalValue,
    TypeName,
    equal,
    find,
    type_name,
)

MAX_ITERATIONS = 1_000_000  # of all comprehensions in one evaluation (upstream CELSelectorExpressionMaxCost)
Scope = Mapping[str, Type]
Variables = dict[str, Any]
Evaluate = Callable[[Variables], Any]
_ERROR = object()
_PARTS = re.compile(r"(\w+)\((.*)\)")
_BUDGET = "@iterations"


class Compiler:
    """Makes closures of nodes; each method returns one, and the node's type."""

    def __init__(self, structs: Mapping[Type, Mapping[str, Type]]) -> None:
        self._structs = structs

    def compile(self, node: Node, scope: Scope) -> tuple[Evaluate, Type]:
        """The node as a function of its variables. Raises CompileError."""
        match node:
            case Literal(value):
                return lambda _: value, type_name(value)
            case Ident(name):
                return self._ident(name, scope)
            case Select():
                return self._select(node, scope)
            case Call():
                return self._call(node, scope)
            case ListOf():
                return self._list(node, scope)
            case MapOf():
                return self._map(node, scope)
            case Bind():
                return self._bind(node, scope)
        return self._comprehension(node, scope)

    def _ident(self, name: str, scope: Scope) -> tuple[Evaluate, Type]:
        if name in scope:
            return lambda variables: variables[name], scope[name]
        if name in TYPES:
            return lambda _: TypeName(name), "type"
        raise CompileError(f"undeclared reference to '{name}' (in container '')")

    def _select(self, node: Select, scope: Scope) -> tuple[Evaluate, Type]:
        operand, of = self.compile(node.operand, scope)
        field, kind = node.field, self._field_type(of, node.field)
        if node.test:
            return lambda variables: _field(operand(variables), field).present, "bool"
        if node.optional:
            return lambda variables: _field(operand(variables), field), _optional(kind)

        def select(variables: Variables) -> Any:
            value = operand(variables)
            found = _field(value, field)
            if isinstance(value, OptionalValue):
                return found
            if not found.present:
                raise EvaluationError(f"no such key: {field}")
            return found.value

        return select, _optional(kind) if of.startswith("optional(") else kind

    def _field_type(self, of: Type, field: str) -> Type:
        if of == "dyn":
            return "dyn"
        name, arguments = _parts(of)
        if name == "optional":
            return self._field_type(arguments[0], field)
        if name == "map" and arguments[0] in ("string", "dyn"):
            return arguments[1]
        if of not in self._structs:
            raise CompileError(f"type '{of}' does not support field selection")
        if field not in self._structs[of]:
            raise CompileError(f"undefined field '{field}'")
        return self._structs[of][field]

    # ---- calls

    def _call(self, node: Call, scope: Scope) -> tuple[Evaluate, Type]:
        if node.function in ("&&", "||", "?:"):
            return self._control(node, scope)
        target, qualified = node.target, f"{getattr(node.target, 'name', '')}.{node.function}"
        if isinstance(target, Ident) and target.name not in scope and (qualified, False) in OVERLOADS:
            return self._dispatch(OVERLOADS[qualified, False], qualified, node.args, scope)
        method = target is not None
        if (node.function, method) not in OVERLOADS:
            raise CompileError(f"undeclared reference to '{node.function}' (in container '')")
        arguments = node.args if target is None else (target, *node.args)
        return self._dispatch(OVERLOADS[node.function, method], node.function, arguments, scope)

    def _dispatch(
        self, overloads: Sequence[Overload], name: str, args: Sequence[Node], scope: Scope
    ) -> tuple[Evaluate, Type]:
        mixed = name == "format"  # the one function whose list may hold values of any types
        compiled = [
            self._list(each, scope, mixed=mixed) if isinstance(each, ListOf) else self.compile(each, scope)
            for each in args
        ]
        functions, kinds = [function for function, _ in compiled], [kind for _, kind in compiled]
        fitting = [(each, _result(each, kinds)) for each in overloads if len(each.parameters) == len(args)]
        fitting = [(each, result) for each, result in fitting if result]
        if not fitting:
            raise CompileError(f"found no matching overload for '{name}' applied to '({', '.join(kinds)})'")
        results = {result for _, result in fitting}
        candidates = [(each.function, [_test(kind) for kind in each.parameters]) for each, _ in fitting]

        def call(variables: Variables) -> Any:
            values = [function(variables) for function in functions]
            for function, tests in candidates:
                if all(test(value) for test, value in zip(tests, values, strict=True)):
                    return function(*values)
            raise EvaluationError(NO_OVERLOAD)

        return call, results.pop() if len(results) == 1 else "dyn"

    def _control(self, node: Call, scope: Scope) -> tuple[Evaluate, Type]:
        """The operators that do not evaluate, or forgive, some of their operands."""
        compiled = [self.compile(argument, scope) for argument in node.args]
        functions, kinds = [function for function, _ in compiled], [kind for _, kind in compiled]
        for kind in kinds[:1] if node.function == "?:" else kinds:
            _require_bool(kind, node.function)
        if node.function != "?:":
            decisive = node.function == "||"
            return lambda variables: _decided(functions, variables, decisive), "bool"
        if not _assignable(kinds[1], kinds[2], {}):
            raise CompileError(f"found no matching overload for '_?_:_' applied to '({', '.join(kinds)})'")
        condition, then, otherwise = functions
        return (
            lambda variables: then(variables) if _bool(condition(variables)) else otherwise(variables),
            kinds[1] if kinds[1] == kinds[2] else "dyn",
        )

    # ---- lists, maps, macros

    def _list(self, node: ListOf, scope: Scope, *, mixed: bool = False) -> tuple[Evaluate, Type]:
        compiled = [self.compile(element, scope) for element in node.elements]
        elements = [(function, at in node.optional) for at, (function, _) in enumerate(compiled)]
        kinds = _element_types([kind for _, kind in compiled], node.optional)

        def make(variables: Variables) -> list[Any]:
            values = [(function(variables), optional) for function, optional in elements]
            return [
                value.value if optional else value for value, optional in values if not optional or _optional_of(value)
            ]

        return make, "list(dyn)" if mixed else f"list({_joined(kinds)})"

    def _map(self, node: MapOf, scope: Scope) -> tuple[Evaluate, Type]:
        keys = [self.compile(key, scope) for key, _ in node.entries]
        values = [self.compile(value, scope) for _, value in node.entries]
        kinds = _element_types([kind for _, kind in values], node.optional)

        def make(variables: Variables) -> dict[Any, Any]:
            mapping: dict[Any, Any] = {}
            for at, ((key, _), (value, _)) in enumerate(zip(keys, values, strict=True)):
                its_key, its_value = key(variables), value(variables)
                if at not in node.optional:
                    _insert(mapping, its_key, its_value)
                elif _optional_of(its_value):
                    _insert(mapping, its_key, its_value.value)
            return mapping

        return make, f"map({_joined([kind for _, kind in keys])},{_joined(kinds)})"

    def _bind(self, node: Bind, scope: Scope) -> tuple[Evaluate, Type]:
        value, kind = self.compile(node.value, scope)
        if node.kind != "bind" and kind != "dyn" and not kind.startswith("optional("):
            raise CompileError(f"found no matching overload for '{node.kind}' applied to '{kind}'")
        inner = kind if node.kind == "bind" else _unwrapped(kind)
        body, result = self.compile(node.body, {**scope, node.variable: inner})

        def bind(variables: Variables) -> Any:
            bound = value(variables)
            if node.kind != "bind":
                if not _optional_of(bound):
                    return NONE
                bound = bound.value
            found = body({**variables, node.variable: bound})
            return OptionalValue(True, found) if node.kind == "optMap" else found

        return bind, _optional(result) if node.kind == "optMap" else result

    def _comprehension(self, node: Comprehension, scope: Scope) -> tuple[Evaluate, Type]:
        values, kind = self.compile(node.range, scope)
        name, arguments = _parts(kind)
        if name not in ("list", "map", "dyn") or (node.kind == "sortBy" and name == "map"):
            raise CompileError(f"expression of type '{kind}' cannot be range of a comprehension")
        first = "dyn" if name == "dyn" else arguments[0]
        types = (first,) if len(node.variables) == 1 else ("int" if name == "list" else first, arguments[-1])
        inner = {**scope, **dict(zip(node.variables, types, strict=True))}
        bodies = [self.compile(body, inner) for body in node.bodies]
        predicate = bodies[0] if node.kind in ("all", "exists", "exists_one", "filter") or len(bodies) > 1 else None
        if predicate is not None:
            _require_bool(predicate[1], node.kind)
        run = _COMPREHENSIONS[node.kind]
        functions = [function for function, _ in bodies]
        result = {"map": f"list({bodies[-1][1]})", "transformList": f"list({bodies[-1][1]})"}
        result |= dict.fromkeys(("filter", "sortBy"), kind if name == "list" else f"list({first})")
        result |= {"transformMap": f"map({types[0]},{bodies[-1][1]})", "transformMapEntry": bodies[-1][1]}

        def evaluate(variables: Variables) -> Any:
            over = values(variables)
            scopes = ({**variables, **entry} for entry in _entries(over, node.variables, variables))
            return run(scopes, functions, node.variables)

        return evaluate, result.get(node.kind, "bool")


def _entries(over: Any, names: Sequence[str], variables: Variables) -> Any:
    if not isinstance(over, list | dict):
        raise EvaluationError(NO_OVERLOAD)
    budget = variables[_BUDGET]
    pairs = enumerate(over) if isinstance(over, list) else over.items()
    for key, value in pairs:
        budget[0] -= 1
        if budget[0] < 0:
            raise EvaluationError("operation cancelled: actual cost limit exceeded")
        yield (
            {names[0]: value if isinstance(over, list) else key}
            if len(names) == 1
            else {names[0]: key, names[1]: value}
        )


def _quantified(scopes: Any, body: Evaluate, decisive: bool) -> bool:
    return _decided((lambda _, inner=inner: body(inner) for inner in scopes), {}, decisive)


def _kept(scopes: Any, functions: Sequence[Evaluate]) -> Any:
    """The scopes that the predicate, if there is one before the last function, lets pass."""
    return (inner for inner in scopes if len(functions) == 1 or _bool(functions[0](inner)))


def _to_map(scopes: Any, functions: Sequence[Evaluate], names: Sequence[str], *, entries: bool) -> dict[Any, Any]:
    mapping: dict[Any, Any] = {}
    for inner in _kept(scopes, functions):
        made = functions[-1](inner)
        for key, value in made.items() if entries else ((inner[names[0]], made),):
            _insert(mapping, key, value, once=True)
    return mapping


def _sort_by(scopes: Any, functions: Sequence[Evaluate], names: Sequence[str]) -> list[Any]:
    inners = list(scopes)
    return sorted_by([inner[names[0]] for inner in inners], [functions[0](inner) for inner in inners])


_COMPREHENSIONS: dict[str, Callable[[Any, Sequence[Evaluate], Sequence[str]], Any]] = {
    "all": lambda scopes, functions, _: _quantified(scopes, functions[0], False),
    "exists": lambda scopes, functions, _: _quantified(scopes, functions[0], True),
    "exists_one": lambda scopes, functions, _: sum(_bool(functions[0](inner)) for inner in scopes) == 1,
    "filter": lambda scopes, functions, names: [inner[names[0]] for inner in scopes if _bool(functions[0](inner))],
    "map": lambda scopes, functions, _: [functions[-1](inner) for inner in _kept(scopes, functions)],
    "transformList": lambda scopes, functions, _: [functions[-1](inner) for inner in _kept(scopes, functions)],
    "transformMap": lambda scopes, functions, names: _to_map(scopes, functions, names, entries=False),
    "transformMapEntry": lambda scopes, functions, names: _to_map(scopes, functions, names, entries=True),
    "sortBy": _sort_by,
}


def _decided(functions: Any, variables: Variables, decisive: bool) -> bool:
    """The first operand that decides; an error counts only where none does."""
    error: EvaluationError | None = None
    for function in functions:
        try:
            if _bool(function(variables)) is decisive:
                return decisive
        except EvaluationError as failure:
            error = failure
    if error is not None:
        raise error
    return not decisive


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError(NO_OVERLOAD)
    return value


def _optional_of(value: Any) -> bool:
    if not isinstance(value, OptionalValue):
        raise EvaluationError(NO_OVERLOAD)
    return value.present


def _field(value: Any, name: str) -> OptionalValue:
    if isinstance(value, OptionalValue):
        return _field(value.value, name) if value.present else NONE
    if not isinstance(value, dict):
        raise EvaluationError(NO_OVERLOAD)
    return OptionalValue(True, value[name]) if hasattr(value, "__missing__") else find(value, name)


def _insert(mapping: dict[Any, Any], key: Any, value: Any, *, once: bool = False) -> None:
    if type_name(key) not in ("bool", "int", "uint", "string"):
        raise EvaluationError("unsupported key type")
    if once and any(equal(key, each) for each in mapping):
        raise EvaluationError(f"insert failed: key {key} already exists")
    mapping[key] = value


# ---- types


def _parts(kind: Type) -> tuple[str, list[Type]]:
    """`map(string,list(int))` -> `map`, [`string`, `list(int)`]."""
    match = _PARTS.fullmatch(kind)
    if match is None:
        return kind, ["dyn", "dyn"]
    arguments, depth = [""], 0
    for mark in match[2]:
        depth += (mark == "(") - (mark == ")")
        if mark == "," and not depth:
            arguments.append("")
        else:
            arguments[-1] += mark
    return match[1], arguments


def _optional(kind: Type) -> Type:
    return kind if kind.startswith("optional(") else f"optional({kind})"


def _unwrapped(kind: Type) -> Type:
    name, arguments = _parts(kind)
    return arguments[0] if name == "optional" else "dyn"


def _element_types(kinds: Sequence[Type], optional: frozenset[int]) -> list[Type]:
    """The types of a literal's elements, but of those optional ones that have no value anyway."""
    types = [_unwrapped(kind) if at in optional else kind for at, kind in enumerate(kinds)]
    return [kind for at, kind in enumerate(types) if kind != "dyn" or at not in optional]


def _joined(kinds: Sequence[Type]) -> Type:
    """The one type of a literal's elements."""
    for kind in kinds[1:]:
        if kind != kinds[0] and ("dyn" in (kind, kinds[0]) or not _assignable(kinds[0], kind, {})):
            raise CompileError(f"expected type '{kinds[0]}' but found '{kind}'")
    return kinds[0] if kinds else "dyn"


def _require_bool(kind: Type, where: str) -> None:
    if kind not in ("bool", "dyn"):
        raise CompileError(f"expected type 'bool' but found '{kind}' in '{where}'")


def _result(overload: Overload, kinds: Sequence[Type]) -> Type:
    """The type of the overload's result for arguments of these types; empty where they do not fit."""
    bound: dict[str, Type] = {}
    if not all(_assignable(parameter, kind, bound) for parameter, kind in zip(overload.parameters, kinds, strict=True)):
        return ""
    return re.sub(r"\b[AB]\b", lambda letter: bound.get(letter[0], "dyn"), overload.result)


def _assignable(parameter: Type, kind: Type, bound: dict[str, Type]) -> bool:
    if parameter in ("A", "B"):
        known = bound.get(parameter)
        if known is None or known == "dyn":
            bound[parameter] = kind
            return True
        return _assignable(known, kind, bound)
    if "dyn" in (parameter, kind) or parameter == kind:
        return True
    (name, inner), (other, others) = _parts(parameter), _parts(kind)
    if "(" in parameter and kind in (name,):
        return True
    if kind == "null_type" or parameter == "null_type":
        return (parameter if kind == "null_type" else kind) in OPAQUE or name == "optional"
    if name != other or "(" not in parameter:
        return False
    return all(_assignable(left, right, bound) for left, right in zip(inner, others, strict=True))


def _test(parameter: Type) -> Callable[[Any], bool]:
    """Whether a value is of a type, as far as its own type tells."""
    name = _parts(parameter)[0]
    if name in ("A", "B", "dyn"):
        return lambda _: True
    if name in ("list", "map"):
        of = TYPES[name]
        return lambda value: isinstance(value, of)
    name = "optional_type" if name == "optional" else name
    return lambda value: type_name(value) == name


def evaluated(function: Evaluate, variables: Variables) -> Any:
    """The value of a compiled expression. Raises EvaluationError."""
    return function({**variables, _BUDGET: [MAX_ITERATIONS]})
