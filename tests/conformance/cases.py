"""Random cases: a small cluster and a pod to place in it, about one feature or several at once."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.builders import Object
from tests.conformance.draft import Dice, draft
from tests.conformance.features import FEATURES, configuration, victim_groups
from tests.conformance.uniform import examples

MIXED, CONFIGURED, VICTIM_GROUPS = "mixed", "configured", "victim-groups"
KINDS = (*FEATURES, MIXED, CONFIGURED, VICTIM_GROUPS)


def kind_of(case: Object) -> str:
    kind: str = case.get("name", "").rpartition("-")[0]
    return kind


@st.composite
def cases(draw: st.DrawFn, kind: str) -> Object:
    """A case about one feature; `mixed`: about several; `configured`: with a configuration besides.

    `victim-groups`: a single pod preempts, and pods of groups are in its way.
    """
    dice = Dice(draw)
    drafted = draft(dice)
    if kind == VICTIM_GROUPS:
        victim_groups.add(dice, drafted)
        return drafted.case(kind)
    features = [kind] if kind in FEATURES else dice.some(list(FEATURES), 2, 4)
    for name in sorted(features, key=list(FEATURES).index):
        FEATURES[name](dice, drafted)
    if kind == CONFIGURED:
        configuration.add(dice, drafted)
    return drafted.case(kind)


def named(kind: str, number: int, first_seed: int) -> list[Object]:
    """That many cases, the same for the same seed, named by kind and number."""
    drawn = examples(cases(kind), number, f"{kind} {first_seed}")
    return [{**case, "name": f"{kind}-{index:03}"} for index, case in enumerate(drawn)]
