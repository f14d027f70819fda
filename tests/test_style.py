"""Texts are plain English, and an assignment sets one attribute.

The phrases below are habits that once made these texts hard to read. They are symptoms only: read a sentence aloud
before you write it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PHRASES = re.compile(
    r"\b(?:"  # in a group, because alternatives that each begin with it take eight times as long
    + "|".join(
        (
            "told",
            "tells? of",
            "hea(?:r|rs|rd) of",
            "anew",
            "till",
            "meanwhile",
            "as a rule",
            "that (?:is|are) none",
            "whoever",
            "(?:no|some)body",
            "of no (?:account|effect)",
            "by (?:itself|themselves)",
            "to be had",
            "however it is",
            "let go of",
            "wants? (?:a|an|the)",
            "who (?:waits?|asks?|reads?|calls?)",
        )
    )
    + r")\b"
    r"|\b(?:no|any) more$"
    r"|(?:^|[.] )Has (?:the|a|an|no|nothing|its|each|every|all|two|one|pods)\b"
    r"|, for (?:it|they|that|there|nobody)\b",
    re.MULTILINE,
)
TELEGRAM = re.compile(r"^(?:What|Whether|Which|How|Where|Why|Who|Of)\b[^?]*$")
"""A docstring or comment that is half a question."""
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "tests/README.md"])
MODULES = sorted([*ROOT.glob("extender/**/*.py"), *ROOT.glob("examples/**/*.py")])


class Module(NamedTuple):
    """The parts of a module that the tests read. Its whole tree, if kept, would slow the garbage collector down.

    Attributes:
        texts: (line, text, is a docstring or comment) for docstrings, sentences in strings, and comments.
        formats: (line, format) for each call of a logger.
        packed: the lines of assignments that set several attributes.
    """

    texts: list[tuple[int, str, bool]]
    formats: list[tuple[int, str]]
    packed: list[int]


@cache
def module(path: Path) -> Module:
    text = path.read_text()
    nodes = list(ast.walk(ast.parse(text)))
    return Module([*texts(nodes), *comments(text)], list(log_formats(nodes)), list(packed_assignments(nodes)))


def texts(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str, bool]]:
    docstrings = set()
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            expression = node.body[0]
            assert isinstance(expression, ast.Expr)
            docstrings.add(expression.value)
            yield expression.lineno, text, True
    for node in nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or node in docstrings:
            continue
        if node.value.count(" ") >= 3:
            yield node.lineno, node.value, False


def comments(text: str) -> Iterator[tuple[int, str, bool]]:
    for number, line in enumerate(text.splitlines(), 1):
        if comment := re.search(r"(?:^|\s)#+ (.*)", line):  # a string with such a mark is read too
            yield number, comment[1], True


def markdown_texts(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yields the lines of a page outside code blocks."""
    is_code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, re.sub(r"`[^`]*`", "", line), False


LOG_METHODS = {"debug", "info", "warning", "error", "critical", "exception"}


def log_formats(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=logger, attr=method), args=[ast.Constant(value=str(text)), *_]) if (
                method in LOG_METHODS and re.search(r"\b_?log(?:ger)?$", ast.unparse(logger))
            ):
                yield node.lineno, text


def packed_assignments(nodes: Sequence[ast.AST]) -> Iterator[int]:
    for node in nodes:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Tuple) and any(isinstance(element, ast.Attribute) for element in target.elts):
                yield target.lineno


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_texts_hold_no_phrase_of_the_list() -> None:
    hits = []
    for path in (*MODULES, *PAGES):
        for line, text, is_documentation in module(path).texts if path.suffix == ".py" else markdown_texts(path):
            match = PHRASES.search(text) or (TELEGRAM.search(text.partition("\n")[0]) if is_documentation else None)
            if match:
                hits.append(f"{relative(path)}:{line}: {match[0]!r}")
    assert hits == []


def test_a_log_line_is_an_event_and_then_key_value_pairs() -> None:
    """`bind failed pod=%s reason=%r`: texts are quoted by %r, which escapes quotes and line breaks."""
    event, pair = r"[^%=]+?", r" [a-z_]+=%[srd]"
    odd = [
        f"{relative(path)}:{line}: {text!r}"
        for path in MODULES
        for line, text in module(path).formats
        if not re.fullmatch(f"{event}(?:{pair})*", text)
    ]
    assert odd == []


def test_an_assignment_sets_one_attribute() -> None:
    """`self._a, self._b = a, b` hides what a class holds."""
    packed = [f"{relative(path)}:{line}" for path in MODULES for line in module(path).packed]
    assert packed == []
