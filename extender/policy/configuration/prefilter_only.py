"""A predicate whose filter is disabled, but not its pre-filter: it may refuse the pod, or name its nodes."""

from __future__ import annotations

from dataclasses import dataclass

from extender.framework.rules import NO_REFUSAL, Check, Predicate, Verdict
from extender.framework.status import Refusal
from extender.table import PodInfo, Table
from extender.table.labels import Rows


@dataclass(frozen=True, slots=True)
class PreFilterOnly:
    """The pre-filter of `rule`, for a configuration that disables it at the extension point filter alone."""

    rule: Predicate

    @property
    def name(self) -> str:
        return self.rule.name

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        made = self.rule.prepare(pod, table)
        if made is None or isinstance(made, Refusal):
            return made
        return None if made.only is None else _Named(made.only)


class _Named(Check):
    def __init__(self, only: frozenset[str]) -> None:
        self.only = only

    def refuse(self, rows: Rows) -> Verdict:  # noqa: ARG002  the form that every check has
        return NO_REFUSAL
