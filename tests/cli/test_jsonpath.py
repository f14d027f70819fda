"""Templates of `-o jsonpath=`, in kubectl's form."""

from __future__ import annotations

from typing import Any

import pytest

from extender.cli.output import path_of, template_of

DOCUMENT: dict[str, Any] = {
    "kind": "Queue",
    "pods": [
        {"name": "a", "labels": {"example.com/team": "red"}, "priority": 5, "node": None},
        {"name": "b", "labels": {}, "priority": 10, "gates": ["x", "y"], "isGated": True},
    ],
}
CASES = {
    "{.kind}": "Queue",
    ".kind": "Queue",
    "{$.kind}": "Queue",
    "{kind}": "Queue",
    "{.pods[*].name}": "a b",
    "{.pods[0].name}": "a",
    "{.pods[-1].name}": "b",
    "{.pods[0:1].name}": "a",
    "{.pods[9].name}": "",
    "{.pods[*].nothing}": "",
    "{.pods[0].node}": "",
    "{.pods[1].gates}": '["x","y"]',
    "{.pods[1].isGated}": "true",
    "{.pods[0].labels.*}": "red",
    "{.pods[0].labels['example.com/team']}": "red",
    r"{.pods[0].labels.example\.com/team}": "red",
    "{.pods[?(@.name=='b')].priority}": "10",
    "{.pods[?(@.priority < 7)].name}": "a",
    "{.pods[?(@.isGated)].name}": "b",
    "{.pods[?(@.name > 3)].name}": "",
    "{.pods[?(@.labels['example.com/team'] == \"red\")].name}": "a",
    '{range .pods[*]}{.name}{"\\t"}{.priority}{"\\n"}{end}': "a\t5\nb\t10\n",
    "{range .pods[*]}{range .gates[*]}<{@}>{end}{end}": "<x><y>",
    "pods: {.pods[*].name}.": "pods: a b.",
    "{'it is'} {.kind}": "it is Queue",
}
FAULTY = {
    "{.pods": "the brace is not closed",
    "{end}": "has no {range}",
    "{range .pods[*]}": "has no {end}",
    "{.pods[x]}": "expected .name",
    "{.pods[?(@.name=='b]}": "the brace is not closed",
    "{.pods[?(@.name)}": "expected .name",
    "{.pods[?(@.name == b)]}": "expected a number",
    "{..name}": "expected .name",
}


@pytest.mark.parametrize("template", CASES)
def test_a_template_is_filled_in(template: str) -> None:
    assert template_of(template).render(DOCUMENT) == CASES[template]


@pytest.mark.parametrize("template", FAULTY)
def test_a_faulty_template_is_refused_with_the_faulty_part(template: str) -> None:
    with pytest.raises(ValueError, match=FAULTY[template].replace("{", r"\{")):
        template_of(template)


def test_a_path_gives_values_as_they_are() -> None:
    assert path_of(".pods[*].priority").values(DOCUMENT) == [5, 10]
    assert path_of("{.pods[*].priority}").values(DOCUMENT) == [5, 10]
    assert path_of("@").values(7) == [7]
