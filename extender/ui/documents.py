"""Makes the content of each page, ready for JSON, from a cluster and the arguments of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from extender.errors import MalformedRequest
from extender.framework.profile import Profiles
from extender.model.pod_groups import CompositePodGroup, PodGroup
from extender.offline.explain import overview
from extender.offline.explain.explanation import Explanation
from extender.offline.explain.group import explain_group
from extender.offline.nodes import all_nodes, one_node
from extender.offline.recording.reading import Recording
from extender.offline.state import ClusterState
from extender.offline.what_if.comparison import compare
from extender.offline.what_if.scenario import Scenario

Arguments = Mapping[str, str]
Document = dict[str, Any]
Progress = Callable[[int, int], None]
_LONGEST_QUOTE = 20


@dataclass(frozen=True, slots=True)
class Timeline:
    """A recording, and the step at which its cluster is shown.

    Attributes:
        step: the number of the step before which the cluster is shown; the number of steps means the end.
    """

    recording: Recording
    step: int

    @property
    def steps(self) -> int:
        return len(self.recording.steps)

    @property
    def next(self) -> Document:
        """The next step, in the form of RecordedStep.to_dict; after the last step, a step of the kind "end"."""
        if self.step < self.steps:
            return self.recording.steps[self.step].to_dict()
        return {"step": self.step, "at": 0.0, "kind": "end", "subject": "", "text": "the recording ends"}


@dataclass(frozen=True, slots=True)
class Look:
    """A cluster as it is at one moment, from which pages are made.

    Attributes:
        state: the cluster; pages do not change it.
        revision: a number; looks with the same number and source show the same cluster.
        source: where the cluster comes from, as text for people.
        at: the time of this moment, as text for people.
        notes: remarks for people on what could not be read.
        timeline: the recording that the cluster comes from; None if it does not come from a recording.
    """

    state: ClusterState
    revision: int
    source: str
    at: str
    notes: Sequence[str] = ()
    timeline: Timeline | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """The configurations that a site can judge pods by and compare, and the limits on its work.

    Attributes:
        name: the name of the configuration that judges the pods.
        others: the configurations to compare with, by name.
        most_judged: the most pending pods that are judged for one page; None means all.
        progress: called while a long answer is computed.
    """

    name: str = "defaults"
    others: Mapping[str, Profiles] = field(default_factory=dict)
    most_judged: int | None = None
    progress: Progress = lambda done, total: None  # noqa: ARG005


def pending(look: Look, _: Arguments, choices: Choices) -> Document:
    """Returns {"pending": [PendingPod, ...], "groups": [PendingGroup, ...], "unjudged", "notes": [note, ...]}.

    "unjudged" is the number of pods that were not judged.
    """
    judged = overview.pending(look.state, "", choices.progress, choices.most_judged)
    unjudged = len(look.state.pending) - len(judged.pods)
    return {**judged.to_dict(), "unjudged": unjudged, "notes": list(look.notes)}


def pod(look: Look, arguments: Arguments, _: Choices) -> Document:
    """Returns Explanation.to_dict for the pod in `arguments`. Raises UnknownPod if the cluster has no such pod."""
    return Explanation(look.state, look.state.info(_required(arguments, "pod")).pod).to_dict()


def group(look: Look, arguments: Arguments, _: Choices) -> Document:
    """Returns GroupExplanation.to_dict for the group in `arguments`. Raises UnknownPod if there is no such group."""
    kind = arguments.get("kind", PodGroup.__name__)
    if kind not in (PodGroup.__name__, CompositePodGroup.__name__):
        raise MalformedRequest(f"?kind={kind[:_LONGEST_QUOTE]}: expected PodGroup or CompositePodGroup")
    return explain_group(look.state, kind, _required(arguments, "group")).to_dict()


def nodes(look: Look, _arguments: Arguments, _: Choices) -> Document:
    """Returns the summary of all nodes that offline.nodes.all_nodes makes."""
    return all_nodes(look.state)


def node(look: Look, arguments: Arguments, _: Choices) -> Document:
    """Returns the document of offline.nodes.one_node for the node in `arguments`.

    If `arguments` has a pod, "filters" has the filters' verdicts on the pod.

    Raises:
        UnknownNode, UnknownPod: the cluster has no such node or pod.
    """
    name, key = _required(arguments, "node"), arguments.get("pod")
    document: Document = {**one_node(look.state, name), "pod": key, "filters": []}
    if key:
        verdicts = Explanation(look.state, look.state.info(key).pod).on_node(name)
        document["filters"] = [
            {"plugin": v.plugin, "reasons": list(v.reasons), "detail": v.detail, "text": v.text} for v in verdicts
        ]
    return document


def comparison(look: Look, arguments: Arguments, choices: Choices) -> Document:
    """Compares where two configurations place the pending pods; returns Comparison.to_dict plus "names" and "maps".

    Raises:
        MalformedRequest: `arguments` names a configuration that does not exist.
    """
    name = arguments.get("with") or _first_different(choices.others, look.state.profiles)
    if name not in choices.others:
        raise MalformedRequest(f"no configuration {name}: expected one of {', '.join(choices.others)}")
    profiles = look.state.profiles
    result = compare(look.state, profiles, choices.others[name], Scenario(), progress=choices.progress)
    names = [choices.name, name]
    return {"names": names, **result.to_dict(), "maps": result.maps(names)}


def _first_different(others: Mapping[str, Profiles], profiles: Profiles) -> str:
    """Returns the first name whose configuration differs from `profiles`; if none differs, the first name of all."""
    different = (name for name, other in others.items() if other.all != profiles.all)
    return next(different, next(iter(others), ""))


def steps(look: Look, _arguments: Arguments, _: Choices) -> Document:
    """Returns {"steps": [RecordedStep, ...]}. Raises MalformedRequest if the cluster is not from a recording."""
    if look.timeline is None:
        raise MalformedRequest("this is not a recording: it has no steps")
    return {"steps": [step.to_dict() for step in look.timeline.recording.steps]}


def position(name: str, given: str, last: int) -> int:
    """Returns the value of the argument `name` as a number. Raises MalformedRequest unless it is from 0 to `last`."""
    if given.isascii() and given.isdigit() and len(given) <= len(str(last)) and int(given) <= last:
        return int(given)
    raise MalformedRequest(f"?{name}={given[:_LONGEST_QUOTE]}: expected a number from 0 to {last}")


def _required(arguments: Arguments, name: str) -> str:
    if not (value := arguments.get(name)):
        raise MalformedRequest(f"give ?{name}=")
    return value
