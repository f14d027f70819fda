"""The mutants of a module: mutmut's operators and three of our own, each applied in one place."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

Operator = Callable[[cst.CSTNode], Iterable[cst.CSTNode]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One statement of a module, as it is and as it would be."""

    module: str
    """Path of the module's file, relative to the repository."""
    scope: str
    """Qualified name of the function or class that holds the statement; empty at the top of the module."""
    before: str
    after: str
    occurrence: int
    """Tells apart mutants that look the same because the statement is written twice in its scope."""
    at_import: bool
    """The statement runs when the module is imported, and so before any test."""
    lines: range
    """Where the statement is at the moment; not part of the key."""
    source: Callable[[], str]
    """Returns the whole module with the mutant in it."""

    @property
    def room(self) -> str:
        return self.module.split("/")[1]

    @property
    def key(self) -> str:
        """Identifies the mutant, whatever else changes in the module."""
        return "\n".join((self.module, self.scope, self.before, self.after, str(self.occurrence)))


def draw(mutants: Iterable[Mutant], seed: int, count: int) -> list[Mutant]:
    """Returns `count` mutants; an edit changes the draw only by the mutants that it adds or removes."""
    return sorted(mutants, key=lambda mutant: sha256(f"{seed}\n{mutant.key}".encode()).digest())[:count]


def mutants_of(root: Path, module: str) -> list[Mutant]:
    """Returns all mutants of a module, in the order of its text."""
    wrapper = MetadataWrapper(cst.parse_module((root / module).read_text()), unsafe_skip_copy=True)
    return list(_Module(module, wrapper).mutants())


def _negated_condition(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """`if ready:` becomes `if not ready:`; mutmut changes only the operators in a condition."""
    assert isinstance(node, cst.If | cst.While)
    if isinstance(node.test, cst.Comparison | cst.UnaryOperation):
        return  # mutmut has this one
    test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield node.with_changes(test=cst.UnaryOperation(cst.Not(), test))


def _dropped_statement(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A call whose value is not used does not take place."""
    assert isinstance(node, cst.Expr)
    if isinstance(node.value, cst.Call | cst.Await):
        yield cst.Pass()


def _dropped_operand(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """`now - oldest` becomes `now`, and `ready and not full` becomes `ready`, and `not full`."""
    assert isinstance(node, cst.BinaryOperation | cst.BooleanOperation)
    operands = [node.left, node.right] if isinstance(node, cst.BooleanOperation) else [node.left]
    for operand in operands:
        yield operand.with_changes(lpar=[*node.lpar, *operand.lpar], rpar=[*operand.rpar, *node.rpar])


def _renamed(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A string that names something gets another name. A sentence is left as it is: golden files hold wordings."""
    assert isinstance(node, cst.BaseString)
    if isinstance(node, cst.SimpleString) and " " not in node.value:
        yield from list(mutators.operator_string(node))[:1]


def _dropped_argument(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """`f(a, b)` becomes `f(a)` and `f(b)`. mutmut also puts None in each place, which seldom says more."""
    assert isinstance(node, cst.Call)
    if len(node.args) > 1:
        for arg in node.args:
            if not _is_left_out(arg):
                yield node.with_changes(args=[other for other in node.args if other is not arg])


_REPLACED = {mutators.operator_string, mutators.operator_arg_removal, mutators.operator_assignment}
OPERATORS: list[tuple[type | tuple[type, ...], Operator]] = [
    *((kind, operator) for kind, operator in mutators.mutation_operators if operator not in _REPLACED),
    (cst.BaseString, _renamed),
    (cst.Call, _dropped_argument),
    ((cst.If, cst.While), _negated_condition),
    (cst.Expr, _dropped_statement),
    ((cst.BinaryOperation, cst.BooleanOperation), _dropped_operand),
]


class _Module:
    """Walks over a module, and knows the scope and the statement of each node."""

    def __init__(self, path: str, wrapper: MetadataWrapper) -> None:
        self._path = path
        self._module = wrapper.module
        self._position = wrapper.resolve(PositionProvider)
        self._before: dict[cst.CSTNode, str] = {}
        self._occurrences: Counter[tuple[str, ...]] = Counter()

    def mutants(self) -> Iterator[Mutant]:
        yield from self._below(self._module, "", True, None)

    def _below(self, node: cst.CSTNode, scope: str, at_import: bool, statement: cst.CSTNode | None) -> Iterator[Mutant]:
        if _is_left_out(node):
            return
        if isinstance(node, cst.ClassDef | cst.FunctionDef):
            scope = f"{scope}.{node.name.value}".lstrip(".")
            if isinstance(node, cst.FunctionDef):
                # A default is a value of the import, but it takes effect in the call.
                at_import = False
        if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            statement = node
        for mutated in _mutations(node):
            assert statement is not None
            yield from self._mutant(node, mutated, scope, at_import, statement)
        for child in node.children:
            yield from self._below(child, scope, at_import, statement)

    def _mutant(
        self, node: cst.CSTNode, mutated: cst.CSTNode, scope: str, at_import: bool, statement: cst.CSTNode
    ) -> Iterator[Mutant]:
        before = self._before.get(statement) or self._before.setdefault(statement, _on_one_line(statement))
        after = _on_one_line(statement.deep_replace(node, mutated) if node is not statement else mutated)
        if before == after:
            return
        self._occurrences[scope, before, after] += 1
        occurrence = self._occurrences[scope, before, after]
        source = partial(self._mutated, node, mutated)
        yield Mutant(self._path, scope, before, after, occurrence, at_import, self._lines(statement), source)

    def _mutated(self, node: cst.CSTNode, mutated: cst.CSTNode) -> str:
        module = self._module.deep_replace(node, mutated)
        assert isinstance(module, cst.Module)
        return module.code

    def _lines(self, statement: cst.CSTNode) -> range:
        """The lines of a statement, without those of the statements in it."""
        whole = self._position[statement]
        assert isinstance(whole, CodeRange)
        body = getattr(statement, "body", None)
        if isinstance(statement, cst.FunctionDef) or not isinstance(body, cst.IndentedBlock):
            return range(whole.start.line, whole.end.line + 1)
        first = self._position[body.body[0]]
        assert isinstance(first, CodeRange)
        return range(whole.start.line, max(first.start.line, whole.start.line + 1))


def _mutations(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    for kind, operator in OPERATORS:
        if isinstance(node, kind):
            yield from operator(node)


def _is_left_out(node: cst.CSTNode) -> bool:
    """Returns True for what decides nothing: imports, types, decorators, docstrings, assertions, log lines."""
    match node:
        case cst.Import() | cst.ImportFrom() | cst.Annotation() | cst.Decorator() | cst.Assert():
            return True
        case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()):
            return True
        case cst.Arg(keyword=cst.Name(value="frozen" | "gc" | "omit_defaults" | "kw_only" | "slots")):
            return True
        case cst.If(test=cst.Name(value="TYPE_CHECKING")):
            return True
        case cst.Expr(value=cst.Call(func=cst.Attribute(value=cst.Name(value="_log")))):
            return True
        case cst.Call(func=cst.Name(value="cast" | "TypeVar" | "NewType")):
            return True
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value="__slots__" | "__all__"))]):
            return True
    return False


class _WithoutBodies(cst.CSTTransformer):
    """Leaves of a compound statement what is its own: `if ready: ...`."""

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock) -> cst.BaseSuite:  # noqa: N802 - libcst's name
        return cst.SimpleStatementSuite([cst.Expr(cst.Ellipsis())])


def _on_one_line(statement: cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]) -> str:
    """Returns a statement's own code, without its layout and comments."""
    assert isinstance(statement, cst.CSTNode)
    bare = statement.visit(_WithoutBodies())
    code = cst.Module(body=[bare]).code  # type: ignore[list-item]  # a statement stays one
    return " ".join(ast.unparse(ast.parse(code.strip())).split())
