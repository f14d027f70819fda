"""Runs users' Bind rules, which choose annotations that a pod gets in its Binding.

The API server writes the node and the annotations of a Binding in one update of the pod. So what a rule chooses exists
if and only if the pod is bound. A rule chooses on the table on which the pod is judged, and the choice is assumed
together with the pod. Other pods see it at once, and no longer than the assumption lasts.

Source: upstream BindingREST.setPodNodeAndMetadata; ValidateAnnotations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from extender.errors import BindingFailed
from extender.framework.plugin import BIND, error_prefix
from extender.model.formats import qualified_name
from extender.runtime.ports import Annotations
from extender.runtime.unsettled import MOST_ANNOTATION_BYTES
from extender.table import PodInfo, Table

_MOST_POD_BYTES = 256 * 1024  # upstream TotalAnnotationSizeLimitB


class AnnotationRule(Protocol):
    """A user's Bind rule."""

    @property
    def name(self) -> str: ...

    def choose(self, pod: PodInfo, row: int, table: Table) -> Mapping[str, str]:
        """Returns the annotations that the pod gets if it is bound to the node of this row.

        Raises:
            BindingFailed: the rule rejected the pod, or raised an exception. The pod must not be bound.
            RuleUnanswered: the rule did not answer by the deadline of the table.
        """


def choose_annotations(rules: Sequence[AnnotationRule], pod: PodInfo, row: int, table: Table) -> Annotations:
    """Returns what all rules choose for a pod on the node of this row. Each rule sees what the rules before it chose.

    Raises the errors of `AnnotationRule.choose`. Raises BindingFailed also if the API server would not store what a
    rule chose; the message names the rule.
    """
    chosen: dict[str, str] = {}
    for rule in rules:
        additions = rule.choose(pod.annotated(tuple(chosen.items())), row, table)
        fault = _fault(additions, chosen, pod)
        if fault is not None:
            raise BindingFailed(f"{error_prefix(BIND, rule.name)}{fault}")
        chosen |= additions
    return tuple(chosen.items())


def _fault(additions: Mapping[str, str], chosen: Mapping[str, str], pod: PodInfo) -> str | None:
    for key, value in additions.items():
        if (fault := qualified_name(key.lower())) is not None:
            return f"annotation {fault}"
        if chosen.get(key, value) != value:
            return f"chose {value!r} for the annotation {key}, for which an earlier rule chose {chosen[key]!r}"
    own = _bytes({**chosen, **additions})
    if own > MOST_ANNOTATION_BYTES:
        return f"chose annotations of {own} bytes; a Binding may have {MOST_ANNOTATION_BYTES}, of all rules together"
    total = _bytes({**pod.pod.annotations, **chosen, **additions})
    if total > _MOST_POD_BYTES:
        return f"the pod would have annotations of {total} bytes; the API server stores at most {_MOST_POD_BYTES}"
    return None


def _bytes(annotations: Mapping[str, str]) -> int:
    return sum(len(text.encode()) for pair in annotations.items() for text in pair)
