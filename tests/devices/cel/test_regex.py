"""Regular expressions, compared with Python's own engine, which also finds the leftmost and first match."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.devices.cel.overloads import compiled
from extender.devices.cel.values import EvaluationError

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", r"\b", "^", "$", "(?i:A)"])


def patterns() -> st.SearchStrategy[str]:
    return st.recursive(
        ATOMS,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map("|".join).map("({})".format),
            st.tuples(inner, st.sampled_from(["?", "{0,2}", "{2}", "??"])).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
            st.tuples(st.sampled_from("ab."), st.sampled_from(["*", "+", "*?"])).map("".join),
        ),
        max_leaves=6,
    )


@given(patterns(), st.text("abA1\n ", max_size=8))
def test_matches_equal_those_of_python(pattern: str, text: str) -> None:
    own = re.search(pattern.replace("$", r"\Z"), text, re.ASCII)
    assert compiled(pattern).find(text) == (own and own[0])


@pytest.mark.parametrize("pattern", ["(", "a{2000}", r"(a)\1", "(?=a)", "(?<!a)b", "*", "(?P<n>a)(?P=n)", r"\C"])
def test_syntax_that_re2_does_not_have_is_refused(pattern: str) -> None:
    with pytest.raises(EvaluationError, match="Illegal regex"):
        compiled(pattern)
