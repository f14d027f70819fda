"""Checks the types of syntax trees and compiles the trees to functions.

Types are strings: `int`, `list(A)`, `map(string,dyn)`. An unknown type is `dyn`; its values are checked at run time.
The macros over lists and maps, such as `all` and `filter`, are evaluated here too.

Source: cel-go interpreter and checker, parser/macro.go, ext/comprehensions.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

from extender.devices.cel import syntax
from extender.devices.cel.functions import sorted_by
from extender.devices.cel.overloads import OVERLOADS, Overload, Type, spend_on_call
from extender.devices.cel.syntax import CompileError, Node
from extender.devices.cel.values import (
    NO_OVERLOAD,
    NONE,
    OPAQUE,
    TYPES,
    CostBudget,
    EvaluationError,
    OptionalValue,
    TypeName,
    equal,
    find,
    type_name,
)
from extender.runtime.clock import Deadline

_PARTS = re.compile(r"(\w+)\((.*)\)")
Scope = Mapping[str, Type]


def parts_of(kind: Type) -> tuple[str, list[Type]]:
    """Splits a type into name and parameters: `map(string,list(int))` into `map`, [`string`, `list(int)`]."""
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


def optional(kind: Type) -> Type:
    return kind if kind.startswith("optional(") else f"optional({kind})"


def unwrapped(kind: Type) -> Type:
    name, arguments = parts_of(kind)
    return arguments[0] if name == "optional" else "dyn"


def element_types(kinds: Sequence[Type], optional: frozenset[int]) -> list[Type]:
    """Returns the types of the elements of a list or map literal.

    Optional elements that never have a value are left out. `optional`: the indices of optional elements.
    """
    types = [unwrapped(kind) if index in optional else kind for index, kind in enumerate(kinds)]
    return [kind for index, kind in enumerate(types) if kind != "dyn" or index not in optional]


def joined(kinds: Sequence[Type]) -> Type:
    """Returns the common type of a literal's elements; `dyn` if there are no elements.

    Raises:
        CompileError: the elements have different types.
    """
    for kind in kinds[1:]:
        if kind != kinds[0] and ("dyn" in (kind, kinds[0]) or not assignable(kinds[0], kind, {})):
            raise CompileError(f"expected type '{kinds[0]}' but found '{kind}'")
    return kinds[0] if kinds else "dyn"


def require_bool(kind: Type, where: str) -> None:
    if kind not in ("bool", "dyn"):
        raise CompileError(f"expected type 'bool' but found '{kind}' in '{where}'")


def result_of(overload: Overload, kinds: Sequence[Type]) -> Type:
    """Returns the result type of the overload for arguments of these types; "" if it does not accept such arguments."""
    parameters = overload.parameters
    bound: dict[str, Type] = {}
    if len(parameters) != len(kinds) or not all(map(assignable, parameters, kinds, repeat(bound))):
        return ""
    return re.sub(r"\b[AB]\b", lambda letter: bound.get(letter[0], "dyn"), overload.result)


def assignable(parameter: Type, kind: Type, bound: dict[str, Type]) -> bool:
    if parameter in ("A", "B"):
        bound_type = bound.get(parameter)
        if bound_type is None or bound_type == "dyn":
            bound[parameter] = kind
            return True
        return assignable(bound_type, kind, bound)
    if "dyn" in (parameter, kind) or parameter == kind:
        return True
    (name, inner), (other, others) = parts_of(parameter), parts_of(kind)
    if "(" in parameter and kind in (name,):
        return True
    if kind == "null_type" or parameter == "null_type":
        return (parameter if kind == "null_type" else kind) in OPAQUE or name == "optional"
    if name != other or "(" not in parameter:
        return False
    return all(assignable(left, right, bound) for left, right in zip(inner, others, strict=True))


def runtime_test(parameter: Type) -> Callable[[Any], bool]:
    """Returns a function that tests, at run time, if a value may be passed for a parameter of this type."""
    name = parts_of(parameter)[0]
    if name in ("A", "B", "dyn"):
        return lambda _: True
    if name in ("list", "map"):
        of = TYPES[name]
        return lambda value: isinstance(value, of)
    name = "optional_type" if name == "optional" else name
    return lambda value: type_name(value) == name


class Compiler:
    """Compiles nodes of a syntax tree to Python functions; each method returns a function and its result's CEL type."""

    def __init__(self, structs: Mapping[Type, Mapping[str, Type]]) -> None:
        self._structs = structs

    def compile(self, node: Node, scope: Scope) -> tuple[Evaluate, Type]:
        """Returns a function that evaluates this node of the syntax tree, and the type of its result.

        Raises CompileError.

        `scope`: the types of the variables.
        """
        match node:
            case syntax.LiteralNode(value):
                return lambda _: value, type_name(value)
            case syntax.IdentNode(name):
                return self._ident(name, scope)
            case syntax.SelectNode():
                name = syntax.qualified_name(node)
                return self._ident(name, scope) if name in TYPES else self._select(node, scope)
            case syntax.CallNode():
                return self._call(node, scope)
            case syntax.ListNode():
                return self._list(node, scope)
            case syntax.MapNode():
                return self._map(node, scope)
            case syntax.BindNode():
                return self._bind(node, scope)
        return self._comprehension(node, scope)

    def _ident(self, name: str, scope: Scope) -> tuple[Evaluate, Type]:
        if name in scope:
            return lambda variables: variables[name], scope[name]
        if name in TYPES:
            return lambda _: TypeName(name), "type"
        raise CompileError(f"undeclared reference to '{name}' (in container '')")

    def _select(self, node: syntax.SelectNode, scope: Scope) -> tuple[Evaluate, Type]:
        operand, of = self.compile(node.operand, scope)
        field, kind = node.field, self._field_type(of, node.field)
        if node.test:
            return lambda variables: field_of(operand(variables), field).present, "bool"
        if node.optional:
            return lambda variables: field_of(operand(variables), field), optional(kind)

        def select(variables: Variables) -> Any:
            value = operand(variables)
            member = field_of(value, field)
            if isinstance(value, OptionalValue):
                return member
            if not member.present:
                raise EvaluationError(f"no such key: {field}")
            return member.value

        return select, optional(kind) if of.startswith("optional(") else kind

    def _field_type(self, of: Type, field: str) -> Type:
        if of == "dyn":
            return "dyn"
        name, arguments = parts_of(of)
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

    def _call(self, node: syntax.CallNode, scope: Scope) -> tuple[Evaluate, Type]:
        if node.function in ("&&", "||", "?:"):
            return self._control(node, scope)
        target, qualified = node.target, f"{getattr(node.target, 'name', '')}.{node.function}"
        if isinstance(target, syntax.IdentNode) and target.name not in scope and (qualified, False) in OVERLOADS:
            return self._dispatch(OVERLOADS[qualified, False], qualified, node.args, scope)
        method = target is not None
        if (node.function, method) not in OVERLOADS:
            raise CompileError(f"undeclared reference to '{node.function}' (in container '')")
        arguments = node.args if target is None else (target, *node.args)
        return self._dispatch(OVERLOADS[node.function, method], node.function, arguments, scope)

    def _dispatch(
        self, overloads: Sequence[Overload], name: str, args: Sequence[Node], scope: Scope
    ) -> tuple[Evaluate, Type]:
        mixed = name == "format"  # only `format` accepts a list with values of different types
        compiled = [
            self._list(arg, scope, mixed=mixed) if isinstance(arg, syntax.ListNode) else self.compile(arg, scope)
            for arg in args
        ]
        functions, kinds = [function for function, _ in compiled], [kind for _, kind in compiled]
        fitting = {overload: result for overload in overloads if (result := result_of(overload, kinds))}
        if not fitting:
            raise CompileError(f"found no matching overload for '{name}' applied to '({', '.join(kinds)})'")
        results = set(fitting.values())
        candidates = [(overload.function, [*map(runtime_test, overload.parameters)]) for overload in fitting]

        def call(variables: Variables) -> Any:
            values = [function(variables) for function in functions]
            spend_on_call(variables[BUDGET], name, values)
            for function, tests in candidates:
                if all(test(value) for test, value in zip(tests, values, strict=True)):
                    return function(*values)
            raise EvaluationError(NO_OVERLOAD)

        return call, results.pop() if len(results) == 1 else "dyn"

    def _control(self, node: syntax.CallNode, scope: Scope) -> tuple[Evaluate, Type]:
        """Compiles `&&`, `||` and `?:`, which may skip an operand or ignore its error."""
        compiled = [self.compile(argument, scope) for argument in node.args]
        functions, kinds = [function for function, _ in compiled], [kind for _, kind in compiled]
        for kind in kinds[:1] if node.function == "?:" else kinds:
            require_bool(kind, node.function)
        if node.function != "?:":
            decisive = node.function == "||"
            return lambda variables: decided(functions, variables, decisive), "bool"
        if not assignable(kinds[1], kinds[2], {}):
            raise CompileError(f"found no matching overload for '_?_:_' applied to '({', '.join(kinds)})'")
        condition, then, otherwise = functions
        return (
            lambda variables: then(variables) if as_bool(condition(variables)) else otherwise(variables),
            kinds[1] if kinds[1] == kinds[2] else "dyn",
        )

    # ---- lists, maps, macros

    def _list(self, node: syntax.ListNode, scope: Scope, *, mixed: bool = False) -> tuple[Evaluate, Type]:
        compiled = [self.compile(element, scope) for element in node.elements]
        elements = [(function, index in node.optional) for index, (function, _) in enumerate(compiled)]
        kinds = element_types([kind for _, kind in compiled], node.optional)

        def make(variables: Variables) -> list[Any]:
            variables[BUDGET].spend(len(elements))
            values = [(function(variables), optional) for function, optional in elements]
            return [
                value.value if optional else value for value, optional in values if not optional or is_present(value)
            ]

        return make, "list(dyn)" if mixed else f"list({joined(kinds)})"

    def _map(self, node: syntax.MapNode, scope: Scope) -> tuple[Evaluate, Type]:
        keys = [self.compile(key, scope) for key, _ in node.entries]
        values = [self.compile(value, scope) for _, value in node.entries]
        kinds = element_types([kind for _, kind in values], node.optional)

        def make(variables: Variables) -> dict[Any, Any]:
            variables[BUDGET].spend(len(keys))
            mapping: dict[Any, Any] = {}
            for index, ((key, _), (value, _)) in enumerate(zip(keys, values, strict=True)):
                its_key, its_value = key(variables), value(variables)
                if index not in node.optional:
                    insert(mapping, its_key, its_value)
                elif is_present(its_value):
                    insert(mapping, its_key, its_value.value)
            return mapping

        return make, f"map({joined([kind for _, kind in keys])},{joined(kinds)})"

    def _bind(self, node: syntax.BindNode, scope: Scope) -> tuple[Evaluate, Type]:
        value, kind = self.compile(node.value, scope)
        if node.kind != "bind" and kind != "dyn" and not kind.startswith("optional("):
            raise CompileError(f"found no matching overload for '{node.kind}' applied to '{kind}'")
        inner = kind if node.kind == "bind" else unwrapped(kind)
        body, result = self.compile(node.body, {**scope, node.variable: inner})

        def bind(variables: Variables) -> Any:
            bound = value(variables)
            if node.kind != "bind":
                if not is_present(bound):
                    return NONE
                bound = bound.value
            result = body({**variables, node.variable: bound})
            return OptionalValue(True, result) if node.kind == "optMap" else result

        return bind, optional(result) if node.kind == "optMap" else result

    def _comprehension(self, node: syntax.ComprehensionNode, scope: Scope) -> tuple[Evaluate, Type]:
        values, kind = self.compile(node.range, scope)
        name, arguments = parts_of(kind)
        if name not in ("list", "map", "dyn") or (node.kind == "sortBy" and name == "map"):
            raise CompileError(f"expression of type '{kind}' cannot be range of a comprehension")
        first = "dyn" if name == "dyn" else arguments[0]
        types = (first,) if len(node.variables) == 1 else ("int" if name == "list" else first, arguments[-1])
        inner = {**scope, **dict(zip(node.variables, types, strict=True))}
        bodies = [self.compile(body, inner) for body in node.bodies]
        predicate = bodies[0] if node.kind in ("all", "exists", "exists_one", "filter") or len(bodies) > 1 else None
        if predicate is not None:
            require_bool(predicate[1], node.kind)
        run = COMPREHENSIONS[node.kind]
        functions = [function for function, _ in bodies]
        result = {"map": f"list({bodies[-1][1]})", "transformList": f"list({bodies[-1][1]})"}
        result |= dict.fromkeys(("filter", "sortBy"), kind if name == "list" else f"list({first})")
        result |= {"transformMap": f"map({types[0]},{bodies[-1][1]})", "transformMapEntry": bodies[-1][1]}

        def evaluate(variables: Variables) -> Any:
            over = values(variables)
            scopes = ({**variables, **entry} for entry in entries_of(over, node.variables, variables))
            return run(scopes, functions, node.variables)

        return evaluate, result.get(node.kind, "bool")


def evaluated(function: Evaluate, variables: Variables, deadline: Deadline) -> Any:
    """Evaluates a compiled expression with these variables.

    Raises:
        EvaluationError: the evaluation failed, or its cost is too high.
        DeadlineExceeded: the decision's deadline has passed.
    """
    return function({**variables, BUDGET: CostBudget(deadline)})


Variables = dict[str, Any]
Evaluate = Callable[[Variables], Any]
BUDGET = "@budget"
"""The name of the variable, in each scope, that contains the CostBudget of the evaluation."""


def entries_of(over: Any, names: Sequence[str], variables: Variables) -> Any:
    if not isinstance(over, list | dict):
        raise EvaluationError(NO_OVERLOAD)
    budget = variables[BUDGET]
    pairs = enumerate(over) if isinstance(over, list) else over.items()
    for key, value in pairs:
        budget.spend()
        yield (
            {names[0]: value if isinstance(over, list) else key}
            if len(names) == 1
            else {names[0]: key, names[1]: value}
        )


def _quantified(scopes: Any, body: Evaluate, decisive: bool) -> bool:
    return decided((lambda _, inner=inner: body(inner) for inner in scopes), {}, decisive)


def _accepted(scopes: Any, functions: Sequence[Evaluate]) -> Any:
    """Returns the scopes that the macro's predicate accepts. A scope has the variables for one element.

    With two functions, the first is the predicate and the second computes the result. With one function, there is no
    predicate, and all scopes are accepted.
    """
    return (inner for inner in scopes if len(functions) == 1 or as_bool(functions[0](inner)))


def _to_map(scopes: Any, functions: Sequence[Evaluate], names: Sequence[str], *, entries: bool) -> dict[Any, Any]:
    mapping: dict[Any, Any] = {}
    for inner in _accepted(scopes, functions):
        value_or_entries = functions[-1](inner)
        for key, value in value_or_entries.items() if entries else ((inner[names[0]], value_or_entries),):
            insert(mapping, key, value, once=True)
    return mapping


def _sort_by(scopes: Any, functions: Sequence[Evaluate], names: Sequence[str]) -> list[Any]:
    inners = list(scopes)
    return sorted_by([inner[names[0]] for inner in inners], [functions[0](inner) for inner in inners])


COMPREHENSIONS: dict[str, Callable[[Any, Sequence[Evaluate], Sequence[str]], Any]] = {
    "all": lambda scopes, functions, _: _quantified(scopes, functions[0], False),
    "exists": lambda scopes, functions, _: _quantified(scopes, functions[0], True),
    "exists_one": lambda scopes, functions, _: sum(as_bool(functions[0](inner)) for inner in scopes) == 1,
    "filter": lambda scopes, functions, names: [inner[names[0]] for inner in scopes if as_bool(functions[0](inner))],
    "map": lambda scopes, functions, _: [functions[-1](inner) for inner in _accepted(scopes, functions)],
    "transformList": lambda scopes, functions, _: [functions[-1](inner) for inner in _accepted(scopes, functions)],
    "transformMap": lambda scopes, functions, names: _to_map(scopes, functions, names, entries=False),
    "transformMapEntry": lambda scopes, functions, names: _to_map(scopes, functions, names, entries=True),
    "sortBy": _sort_by,
}


def decided(functions: Any, variables: Variables, decisive: bool) -> bool:
    """Evaluates the operands of `||` (`decisive` is True) or of `&&` (`decisive` is False), and returns the result.

    An operand's error is raised only if no operand has the value `decisive`.
    """
    error: EvaluationError | None = None
    for function in functions:
        try:
            if as_bool(function(variables)) is decisive:
                return decisive
        except EvaluationError as failure:
            error = failure
    if error is not None:
        raise error
    return not decisive


def as_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError(NO_OVERLOAD)
    return value


def is_present(value: Any) -> bool:
    if not isinstance(value, OptionalValue):
        raise EvaluationError(NO_OVERLOAD)
    return value.present


def field_of(value: Any, name: str) -> OptionalValue:
    if isinstance(value, OptionalValue):
        return field_of(value.value, name) if value.present else NONE
    if not isinstance(value, dict):
        raise EvaluationError(NO_OVERLOAD)
    return OptionalValue(True, value[name]) if hasattr(value, "__missing__") else find(value, name)


def insert(mapping: dict[Any, Any], key: Any, value: Any, *, once: bool = False) -> None:
    if type_name(key) not in ("bool", "int", "uint", "string"):
        raise EvaluationError("unsupported key type")
    if once and any(equal(key, other) for other in mapping):
        raise EvaluationError(f"insert failed: key {key} already exists")
    mapping[key] = value
