"""Which YAML of users is read, as which values, and which is refused."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extender.errors import MalformedInput
from extender.runtime.strict_yaml import DEEPEST, load, load_all


def nested(depth: int) -> list[object]:
    """Returns lists in lists: [[]] for 2."""
    value: list[object] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("", None, id="nothing"),
        pytest.param("a: 1\nb: [x, 2.5, true, null, ~]", {"a": 1, "b": ["x", 2.5, True, None, None]}, id="scalars"),
        pytest.param("a: '1'\nb: \"true\"", {"a": "1", "b": "true"}, id="quotes make text"),
        pytest.param(
            "at: 2026-11-21T09:00:00Z\nday: 2026-11-21", {"at": "2026-11-21T09:00:00Z", "day": "2026-11-21"}, id="dates"
        ),
        pytest.param(
            "1: a\nyes: b\n1.10: c\n010: d\n1_000: e\ny: f\n'no': g",
            {"1": "a", "true": "b", "1.1": "c", "8": "d", "1000": "e", "y": "f", "no": "g"},
            id="keys become text as in Go",
        ),
        pytest.param("a: 16.0\nb: 1e3\nc: 0o17\nd: 1_000", {"a": 16, "b": 1000, "c": 15, "d": 1000}, id="as Go reads"),
        pytest.param("a: [y, Off, 1.2.3, -, +, .]", {"a": ["y", False, "1.2.3", "-", "+", "."]}, id="words"),
        pytest.param("a: !!str 1\nb: !!int '2'\nc: !!map {}", {"a": "1", "b": 2, "c": {}}, id="harmless tags"),
        pytest.param("x: &x {a: 1}\ny: {<<: *x, b: 2}", {"x": {"a": 1}, "y": {"a": 1, "b": 2}}, id="a merge"),
        pytest.param("a: 1:30", {"a": "1:30"}, id="no sexagesimals"),
        pytest.param("a: &x [1]\nb: *x", {"a": [1], "b": [1]}, id="an alias"),
        pytest.param("a: ! 1\nb: ! [x]", {"a": 1, "b": ["x"]}, id="a tag without a name"),
        pytest.param("a: |\n  two\n  lines\n", {"a": "two\nlines\n"}, id="a block"),
        pytest.param("[" * DEEPEST + "]" * DEEPEST, nested(DEEPEST), id="deep enough"),
        pytest.param(b"\xef\xbb\xbfa: 1", {"a": 1}, id="a byte order mark"),
    ],
)
def test_a_document_has_these_values(text: str | bytes, value: object) -> None:
    assert load(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: 1\na: 2", "line 2: duplicate key a", id="a key twice"),
        pytest.param("b:\n  a: 1\n  a: 1", "line 3: duplicate key a", id="a key twice inside"),
        pytest.param("x: &x {a: 1}\ny: {<<: *x, a: 2}", "line 2: duplicate key a", id="a key over a merged one"),
        pytest.param("x: &x {a: 1}\ny: {a: 2, <<: *x}", "line 2: duplicate key a", id="a merged key over another"),
        pytest.param("x: &x {a: 1}\ny: {<<: [*x, *x]}", "line 2: duplicate key a", id="a key merged twice"),
        pytest.param(
            "a: !!python/object:os.system {}",
            "line 1: the tag tag:yaml.org,2002:python/object:os.system is not allowed",
            id="a tag",
        ),
        pytest.param("a: [.nan]", "line 1: .nan is not a number that JSON has", id="no number"),
        pytest.param("? [1]\n: 2", "line 1: expected text as the key", id="a key that is a list"),
        pytest.param("~: 2", "line 1: expected text as the key", id="a key that is null"),
        pytest.param(
            "y: {<<: 1}", "line 1: expected a mapping, or a list of mappings, after the merge", id="a merge of 1"
        ),
        pytest.param("a: *nowhere", "line 1: no anchor nowhere", id="an alias of nothing"),
        pytest.param("a: &a [*a]", "line 1: no anchor a before", id="an alias of itself"),
        pytest.param("a: [1", "line 2: did not find expected ',' or ']' (this", id="an open bracket"),
        pytest.param("a: 1\n---\nb: 2", "more than one document", id="two documents"),
        pytest.param(b"a: \xff", "position 3: this byte is not allowed", id="no UTF-8"),
        pytest.param("a: \0", "position 3: this byte is not allowed", id="a control character"),
        pytest.param("a: 1\nb: " + "9" * 5000, "line 2: a number with more than 1000", id="a number of 5,000 digits"),
        pytest.param("a: 0x" + "f" * 5000, "line 1: a number with more than 1000 digits", id="as many of base 16"),
        pytest.param("[" * (DEEPEST + 2), f"nested deeper than {DEEPEST}", id="too many brackets"),
        pytest.param("[" * 500_000, "nest", id="brackets without end"),  # some versions of libyaml refuse them first
        pytest.param("{a: " * 500_000, f"nested deeper than {DEEPEST}", id="braces without end"),
    ],
)
def test_a_fault_is_refused_with_its_line(text: str | bytes, message: str) -> None:
    with pytest.raises(MalformedInput) as caught:
        load(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_billion_laughs_is_an_error() -> None:
    text = "a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]\n"
    text += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
    with pytest.raises(MalformedInput, match="aliases repeat more"):
        load(text)


@pytest.mark.parametrize(("aliases", "is_allowed"), [(100, True), (101, False)])
def test_aliases_may_repeat_a_hundred_thousand_values(aliases: int, is_allowed: bool) -> None:
    thousand = f"[{', '.join(['1'] * 999)}]"  # the list itself is a value
    text = f"a: &a {thousand}\nb: [{', '.join(['*a'] * aliases)}]\n"
    if is_allowed:
        assert load(text) == {"a": [1] * 999, "b": [[1] * 999] * aliases}
    else:
        with pytest.raises(MalformedInput, match="line 2: aliases repeat more than 100000 values"):
            load(text)


def test_a_file_may_have_several_documents() -> None:
    assert list(load_all("a: 1\n---\n---\nb: 2\n")) == [{"a": 1}, None, {"b": 2}]


def test_repeated_keys_are_reported_if_asked() -> None:
    repeated: list[str] = []
    assert list(load_all("a: 1\nb: {c: 1, c: 2}\na: 3\n", repeated=repeated)) == [{"a": 3, "b": {"c": 2}}]
    assert repeated == ["c in line 2", "a in line 3"]
    assert list(load_all("x: &x {a: 1, b: 1}\ny: {<<: *x, a: 2}", repeated=repeated)) == [
        {"x": {"a": 1, "b": 1}, "y": {"b": 1, "a": 2}}
    ]
    assert repeated == ["c in line 2", "a in line 3"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_a_dumped_value_is_loaded_unchanged(value: object) -> None:
    assert load(yaml.safe_dump(value)) == value
