"""The documents behind the pages, of a cluster and the arguments of a request. All are ready for JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from extender.errors import MalformedRequest
from extender.framework.profile import Profiles
from extender.offline.explain.explanation import Explanation
from extender.offline.explain.overview import pending_pods
from extender.offline.nodes import all_nodes, one_node
from extender.offline.recording.reading import Recording
from extender.offline.state import ClusterState
from extender.offline.what_if.comparison import compare
from extender.offline.what_if.scenario import Scenario

Arguments = Mapping[str, str]
Document = dict[str, Any]
Progress = Callable[[int, int], None]
_LONGEST_REST_SECONDS = 0.1
_LONGEST_QUOTE = 20


@dataclass(frozen=True, slots=True)
class Timeline:
    """The steps of a recording.

    Attributes:
        recording: `step`: the one before which the cluster is shown; as many as there are steps: after the last.
    """

    recording: Recording
    step: int

    @property
    def steps(self) -> int:
        return len(self.recording.steps)

    @property
    def next(self) -> Document:
        """RecordedStep.to_dict of the step that comes next; one of the kind "end" after the last."""
        if self.step < self.steps:
            return self.recording.steps[self.step].to_dict()
        return {"step": self.step, "at": 0.0, "kind": "end", "subject": "", "text": "the recording ends"}


@dataclass(frozen=True, slots=True)
class Look:
    """A cluster as it is at one moment.

    Attributes:
        state: to be asked, and left as it is.
        revision: equal for two looks between which nothing has changed.
        source: where it comes from, and `at` as of when, for people.
        notes: what could not be read.
        timeline: where it is one moment of a recording.
    """

    state: ClusterState
    revision: int
    source: str
    at: str
    notes: Sequence[str] = ()
    timeline: Timeline | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """Offers of a site beside the cluster itself.

    Attributes:
        name: of the configuration that the cluster is judged by.
        others: configurations to compare it with, by name.
        most_judged: how many pending pods are judged for one list; None: all.
        progress: told how far a long answer is; it may take its time.
    """

    name: str = "defaults"
    others: Mapping[str, Profiles] = field(default_factory=dict)
    most_judged: int | None = None
    progress: Progress = lambda done, total: None  # noqa: ARG005


def pending(look: Look, _: Arguments, choices: Choices) -> Document:
    """{"pending": [PendingPod, ...], "unjudged": how many more there are, "notes"}."""
    found = pending_pods(look.state, "", choices.progress, choices.most_judged)
    return {
        "pending": [each.to_dict() for each in found],
        "unjudged": len(look.state.pending) - len(found),
        "notes": list(look.notes),
    }


def pod(look: Look, arguments: Arguments, _: Choices) -> Document:
    """See Explanation.to_dict. Raises UnknownPod."""
    return Explanation(look.state, look.state.info(_required(arguments, "pod")).pod).to_dict()


def nodes(look: Look, _arguments: Arguments, _: Choices) -> Document:
    """See offline.nodes.all_nodes."""
    return all_nodes(look.state)


def node(look: Look, arguments: Arguments, _: Choices) -> Document:
    """See offline.nodes.one_node; with a pod among the arguments "pod" and "filters": every filter's verdict on it.

    Raises UnknownNode, UnknownPod.
    """
    name, key = _required(arguments, "node"), arguments.get("pod")
    told: Document = {**one_node(look.state, name), "pod": key, "filters": []}
    if key:
        verdicts = Explanation(look.state, look.state.info(key).pod).on_node(name)
        told["filters"] = [{"plugin": v.plugin, "reasons": list(v.reasons), "detail": v.detail} for v in verdicts]
    return told


def comparison(look: Look, arguments: Arguments, choices: Choices) -> Document:
    """See Comparison.to_dict, with "maps"; the pods that wait are placed.

    Raises MalformedRequest where nothing has that name.
    """
    name = arguments.get("with") or next(iter(choices.others), "")
    if name not in choices.others:
        raise MalformedRequest(f"no configuration {name}: want one of {', '.join(choices.others)}")
    profiles = look.state.profiles
    found = compare(look.state, profiles, choices.others[name], Scenario(), progress=choices.progress)
    names = [choices.name, name]
    return {"names": names, **found.to_dict(), "maps": found.maps(names)}


def steps(look: Look, _arguments: Arguments, _: Choices) -> Document:
    """{"steps": [RecordedStep, ...]}. Raises MalformedRequest where there is no recording."""
    if look.timeline is None:
        raise MalformedRequest("this is not a recording: it has no steps")
    return {"steps": [each.to_dict() for each in look.timeline.recording.steps]}


def half_time(clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> Progress:
    """Returns a progress that sleeps as long as it has worked, so that calls in other threads are not kept waiting."""
    woke = clock()

    def rest(_done: int, _total: int) -> None:
        nonlocal woke
        sleep(min(max(clock() - woke, 0), _LONGEST_REST_SECONDS))
        woke = clock()

    return rest


def position(name: str, given: str, last: int) -> int:
    """Returns the argument as a number from 0 to `last`. Raises MalformedRequest."""
    if given.isascii() and given.isdigit() and len(given) <= len(str(last)) and int(given) <= last:
        return int(given)
    raise MalformedRequest(f"?{name}={given[:_LONGEST_QUOTE]}: expected a number from 0 to {last}")


def _required(arguments: Arguments, name: str) -> str:
    if not (value := arguments.get(name)):
        raise MalformedRequest(f"give ?{name}=")
    return value
