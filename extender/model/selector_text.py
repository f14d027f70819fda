"""Writes selectors as text, in kubectl's notation."""

from __future__ import annotations

from extender.model.meta import LabelSelector, NodeSelectorRequirement
from extender.model.pod import PodAffinityTerm

_FORMATS = {"In": "in ({})", "NotIn": "not in ({})", "Gt": "> {}", "Lt": "< {}"}


def requirement_text(requirement: NodeSelectorRequirement) -> str:
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
    labels += [
        requirement_text(NodeSelectorRequirement(key=each.key, operator=each.operator, values=each.values))
        for each in selector.match_expressions or ()
    ]
    return ",".join(labels) or "every pod"


def term_text(term: PodAffinityTerm) -> str:
    """Returns a pod affinity or anti-affinity term as text: `pods with app=web within kubernetes.io/hostname`."""
    return f"pods with {selector_text(term.label_selector)} within {term.topology_key}"
