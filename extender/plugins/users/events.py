"""The cluster events that a user's rule says may help the pods it refused."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

from extender.framework.events.cluster_events import Action, Resource
from extender.framework.events.queueing_hints import EVERYTHING, Interest, Interests

T = TypeVar("T")

_RESOURCES = {resource.value.rpartition("/")[2]: resource for resource in Resource if resource is not Resource.WILDCARD}
_ACTIONS = {"".join(map(str.title, name.split("_"))): action for name, action in Action.__members__.items()}


def interests_of(woken_by: Mapping[str, str] | None) -> Interests:
    """Returns the events as a queue reads them; None: any event.

    Args:
        woken_by: resource -> actions, in upstream's words: {"Node": "Add|UpdateNodeLabel", "AssignedPod": "Delete"}.

    Raises:
        TypeError: a word is none of upstream's EventResource and ActionType.
    """
    if woken_by is None:
        return EVERYTHING
    return Interests(tuple(Interest(_known(_RESOURCES, name), _actions(actions)) for name, actions in woken_by.items()))


def _actions(text: str) -> Action:
    actions = Action(0)
    for name in text.split("|"):
        actions |= _known(_ACTIONS, name.strip())
    return actions


def _known(words: Mapping[str, T], word: str) -> T:
    if word in words:
        return words[word]
    meant = get_close_matches(word, words, 1)
    raise TypeError(f"woken_by: there is no {word!r}" + (f", did you mean {meant[0]}?" if meant else ""))
