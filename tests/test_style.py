"""Texts are plain English, and an assignment sets one attribute.

The phrases below are habits that once made these texts hard to read. They are symptoms only: read a sentence aloud
before you write it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PHRASES = re.compile(
    "|".join(
        (
            r"\btold\b",
            r"\btells? of\b",
            r"\bhea(?:r|rs|rd) of\b",
            r"\banew\b",
            r"\btill\b",
            r"\bmeanwhile\b",
            r"\bas a rule\b",
            r"\bthat (?:is|are) none\b",
            r"\bwhoever\b",
            r"\b(?:no|some)body\b",
            r"\b(?:no|any) more$",
            r"\bof no (?:account|effect)\b",
            r"\bby (?:itself|themselves)\b",
            r"\bto be had\b",
            r"\bhowever it is\b",
            r"\blet go of\b",
            r"\bwants? (?:a|an|the)\b",
            r"\bwho (?:waits?|asks?|reads?|calls?)\b",
            r"(?:^|[.] )Has (?:the|a|an|no|nothing|its|each|every|all|two|one|pods)\b",
            r", for (?:it|they|that|there|nobody)\b",
        )
    ),
    re.MULTILINE,
)
TELEGRAM = re.compile(r"^(?:What|Whether|Which|How|Where|Why|Who|Of)\b[^?]*$")
"""A docstring or comment that is half a question."""
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "tests/README.md"])
MODULES = sorted([*ROOT.glob("extender/**/*.py"), *ROOT.glob("examples/**/*.py")])


def python_texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yields (line, text, is a docstring or comment) for docstrings, sentences in strings, and comments."""
    tree = ast.parse(source)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            expression = node.body[0]
            assert isinstance(expression, ast.Expr)
            docstrings.add(expression.value)
            yield expression.lineno, text, True
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or node in docstrings:
            continue
        if node.value.count(" ") >= 3:
            yield node.lineno, node.value, False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# "), True


def markdown_texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yields the lines of a page outside code blocks."""
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, re.sub(r"`[^`]*`", "", line), False


LOG_METHODS = {"debug", "info", "warning", "error", "critical", "exception"}


def log_formats(source: str) -> Iterator[tuple[int, str]]:
    """Yields (line, format) for each call of a logger."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=logger, attr=method), args=[ast.Constant(value=str(text)), *_]) if (
                method in LOG_METHODS and re.search(r"\b_?log(?:ger)?$", ast.unparse(logger))
            ):
                yield node.lineno, text


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", [*MODULES, *PAGES], ids=relative)
def test_texts_hold_no_phrase_of_the_list(path: Path) -> None:
    texts = python_texts if path.suffix == ".py" else markdown_texts
    hits = []
    for line, text, is_documentation in texts(path.read_text()):
        match = PHRASES.search(text) or (TELEGRAM.search(text.partition("\n")[0]) if is_documentation else None)
        if match:
            hits.append(f"{relative(path)}:{line}: {match[0]!r}")
    assert hits == []


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_log_line_is_an_event_and_then_key_value_pairs(path: Path) -> None:
    """`bind failed pod=%s reason=%r`: texts are quoted by %r, which escapes quotes and line breaks."""
    event, pair = r"[^%=]+?", r" [a-z_]+=%[srd]"
    odd = [
        f"{relative(path)}:{line}: {text!r}"
        for line, text in log_formats(path.read_text())
        if not re.fullmatch(f"{event}(?:{pair})*", text)
    ]
    assert odd == []


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_an_assignment_sets_one_attribute(path: Path) -> None:
    """`self._a, self._b = a, b` hides what a class holds."""
    packed = [
        f"{relative(path)}:{node.lineno}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Tuple) and any(isinstance(element, ast.Attribute) for element in target.elts)
    ]
    assert packed == []
