"""Compiles selectors to hashable values, so that results can be shared between equal selectors.

Sources: metav1.LabelSelectorAsSelector, labels.Requirement.Matches, component-helpers nodeaffinity.

Writes selectors as text, in kubectl's notation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from extender.model.meta import LabelSelector, LabelSelectorRequirement
from extender.model.pod import PodAffinityTerm

_INT64 = range(-(2**63), 2**63)
_LABEL_VALUE = re.compile(r"(?=.{0,63}\Z)([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(
    r"((?=.{1,253}/)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(?=.{1,63}\Z)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
_SET = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL = re.compile(r"([^\s=!]+)\s*(==|=|!=)\s*([^\s=!]*)")
_COMMA = re.compile(r",(?![^()]*\))")
_FORMATS = {"In": "in ({})", "NotIn": "not in ({})", "Gt": "> {}", "Lt": "< {}"}


def whole_number(text: str) -> int | None:
    """Parses `text` as strconv.ParseInt does; returns None if that fails."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 40:
        return None
    number = int(text)
    return number if number in _INT64 else None


class Requirement(NamedTuple):
    """A condition on one label. `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt; others match nothing."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Returns True if `labels` satisfy the requirement. An absent label satisfies NotIn and DoesNotExist."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return value is not None and self._compares(value)
            case _:
                return False

    def well_formed(self) -> bool:
        """Returns True if the scheduler accepts the requirement (labels.NewRequirement).

        Every value must be a valid label value, even for Gt and Lt, so Gt and Lt do not accept negative numbers.
        """
        match self.operator:
            case "In" | "NotIn":
                valid_count = bool(self.values)
            case "Exists" | "DoesNotExist":
                valid_count = not self.values
            case "Gt" | "Lt":
                valid_count = self.bound() is not None
            case _:
                valid_count = False
        return valid_count and bool(_LABEL_KEY.fullmatch(self.key)) and all(map(_LABEL_VALUE.fullmatch, self.values))

    def bound(self) -> int | None:
        """The number that Gt and Lt compare with; None unless `values` is exactly one whole number."""
        return whole_number(next(iter(self.values))) if len(self.values) == 1 else None

    def _compares(self, value: str) -> bool:
        number = whole_number(value)
        bound = self.bound()
        if number is None or bound is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound


class Selector(NamedTuple):
    """Requirements that must all match. An empty list matches everything, unless `nothing` is True."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        return not self.nothing and all(requirement.matches(labels) for requirement in self.requirements)

    def with_requirements(self, *more: Requirement) -> Selector:
        return Selector(self.requirements + more, self.nothing)


EVERYTHING = Selector()
NOTHING = Selector(nothing=True)


def compile_requirement(requirement: LabelSelectorRequirement) -> Requirement:
    """Converts a requirement of the API to a hashable Requirement."""
    return Requirement(requirement.key, requirement.operator, frozenset(requirement.values or ()))


def compile_selector(selector: LabelSelector | None) -> Selector:
    """Compiles a label selector. An empty one matches everything; None matches nothing (LabelSelectorAsSelector)."""
    if selector is None:
        return NOTHING
    requirements = [
        Requirement(key, "In", frozenset((value,))) for key, value in sorted((selector.match_labels or {}).items())
    ]
    requirements += [compile_requirement(requirement) for requirement in selector.match_expressions or ()]
    return Selector(tuple(requirements)) if requirements else EVERYTHING


@lru_cache(maxsize=4096)
def _from_items(items: tuple[tuple[str, str], ...]) -> Selector:
    return Selector(tuple(Requirement(key, "In", frozenset((value,))) for key, value in items))


def selector_from_labels(labels: Mapping[str, str]) -> Selector:
    """Returns a selector that requires all of these labels; without labels, it matches everything (SelectorFromSet)."""
    return _from_items(tuple(sorted(labels.items())))


def parse_selector(text: str) -> Selector:
    """Parses a label selector in kubectl's form, such as `app=web,tier!=db,zone in (a,b),!old`. Raises ValueError."""
    requirements = []
    for part in (each.strip() for each in _COMMA.split(text)):
        if match := _SET.fullmatch(part):
            values = frozenset(value.strip() for value in match[3].split(","))
            requirement = Requirement(match[1], "In" if match[2] == "in" else "NotIn", values)
        elif match := _EQUAL.fullmatch(part):
            requirement = Requirement(match[1], "NotIn" if match[2] == "!=" else "In", frozenset((match[3],)))
        elif part.startswith("!"):
            requirement = Requirement(part[1:].strip(), "DoesNotExist")
        else:
            requirement = Requirement(part, "Exists")
        if not requirement.well_formed():
            raise ValueError(f"{part or text!r}: expected KEY=VALUE, KEY!=VALUE, KEY, !KEY or KEY in (VALUE,...)")
        requirements.append(requirement)
    return Selector(tuple(requirements))


def requirement_text(requirement: LabelSelectorRequirement) -> str:
    """Returns the requirement as text, like `zone in (a, b)` or `!gpu`."""
    if requirement.operator == "Exists":
        return requirement.key
    if requirement.operator == "DoesNotExist":
        return f"!{requirement.key}"
    form = _FORMATS.get(requirement.operator, f"{requirement.operator} {{}}")
    return f"{requirement.key} {form.format(', '.join(requirement.values or ()))}"


def selector_text(selector: LabelSelector | None) -> str:
    """Returns the selector as text, like `app=web,tier in (a, b)`; `every pod` if it is empty, `nothing` if None."""
    if selector is None:
        return "nothing"
    labels = [f"{key}={value}" for key, value in sorted((selector.match_labels or {}).items())]
    labels += map(requirement_text, selector.match_expressions or ())
    return ",".join(labels) or "every pod"


def term_text(term: PodAffinityTerm) -> str:
    """Returns a pod affinity or anti-affinity term as text: `pods with app=web within kubernetes.io/hostname`."""
    return f"pods with {selector_text(term.label_selector)} within {term.topology_key}"
