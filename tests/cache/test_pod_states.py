"""Every state against every event: the row of the table, or an error and no change."""

from __future__ import annotations

from itertools import product

import pytest

from extender.cache.pod_states import TRANSITIONS, PodEvent, PodState, after
from extender.errors import IllegalTransition

E, S = PodEvent, PodState

# Written a second time on purpose, from upstream's cache and not from the code.
LEGAL = {
    S.INITIAL: {E.ASSUME: S.ASSUMED, E.ADD: S.ADDED},
    S.ASSUMED: {E.FINISH_BINDING: S.FINISHED, E.FORGET: S.INITIAL, E.ADD: S.ADDED, E.REMOVE: S.INITIAL},
    S.FINISHED: {
        E.FINISH_BINDING: S.FINISHED,
        E.FORGET: S.INITIAL,
        E.EXPIRE: S.INITIAL,
        E.ADD: S.ADDED,
        E.REMOVE: S.INITIAL,
    },
    S.ADDED: {E.FINISH_BINDING: S.ADDED, E.UPDATE: S.ADDED, E.REMOVE: S.INITIAL},
}


@pytest.mark.parametrize(("state", "event"), [pytest.param(s, e, id=f"{s.name}-{e.name}") for s, e in product(S, E)])
def test_every_event_in_every_state_follows_the_table(state: PodState, event: PodEvent) -> None:
    expected = LEGAL[state].get(event)
    if expected is None:
        with pytest.raises(
            IllegalTransition, match=f"the event {event.name} is not allowed for a pod in the state {state.name}"
        ):
            after(state, event)
    else:
        assert after(state, event) is expected


def test_every_state_leads_back_to_initial() -> None:
    reached = {S.INITIAL}
    while more := {to for (state, _), to in TRANSITIONS.items() if state in reached} - reached:
        reached |= more
    assert reached == set(S)
    assert all(
        any(to is S.INITIAL for (s, _), to in TRANSITIONS.items() if s is state) for state in set(S) - {S.INITIAL}
    )
