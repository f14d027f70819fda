"""Serves the pages below /ui, as HTML and as JSON: pending pods, a pod, the nodes, a node, a comparison.

A page is made from a `Look`, which is a cluster at one moment (of a live cache, a snapshot or a recording), and from
the arguments in the URL. Pages never change the cluster. The first functions make the content of each page, ready for
JSON. `Site` answers one request at a time, so that browsers cannot keep a scheduler from its work.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from extender.errors import ClusterError, DeadlineExceeded, ExtenderError, MalformedRequest, UnknownNode, UnknownPod
from extender.framework.profile import Profiles
from extender.model.pod_groups import CompositePodGroup, PodGroup
from extender.offline import rendering
from extender.offline.explain import overview
from extender.offline.explain.explanation import Explanation, written_about
from extender.offline.explain.group import explain_group
from extender.offline.nodes import all_nodes, one_node
from extender.offline.plan.plan import find_moves
from extender.offline.recording.reading import Recording
from extender.offline.rendering import NodeMap, SiteLinks, by_free_resource, by_verdict
from extender.offline.state import ClusterState
from extender.offline.what_if.comparison import compare
from extender.offline.what_if.scenario import Scenario
from extender.runtime.process import documentation_address, product_commit, product_version
from extender.web.access import UI
from extender.web.answers import JSON, Answer, Page, error_answer

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
    found = look.state.info(_required(arguments, "pod")).pod
    return Explanation(look.state, found, find_moves=find_moves).to_dict()


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


_HTML = "text/html; charset=utf-8"
_HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)
_DOCUMENTS: Mapping[str, Callable[[Look, Arguments, Choices], Document]] = {
    "pending": pending,
    "pod": pod,
    "group": group,
    "nodes": nodes,
    "node": node,
    "compare": comparison,
    "steps": steps,
}
_TEMPLATES = {"compare": "comparison.html"}
_ASSETS = {"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}
_STATUSES = (
    (UnknownPod, 404),
    (UnknownNode, 404),
    (MalformedRequest, 400),
    (ClusterError, 503),
    (DeadlineExceeded, 503),
)
_MOST_LISTED, _MOST_CACHED, _STEPS_BEFORE = 200, 8, 20
_NODES_LISTED = 50  # long lists are cut, because a browser lays them out again for each step of a zoom
_PATIENCE_SECONDS = 30.0


Isolate = Callable[[Callable[[], Answer]], Answer]
Make = Callable[[str, Arguments, Look], Answer]


def _at_once(make: Callable[[], Answer]) -> Answer:
    return make()


class Site:
    """The pages about a cluster.

    Args:
        look: called with the arguments of each page to get the cluster; never by two threads at once.
        choices: the configurations that pages can compare, and the limits on their work.
        isolate: calls the function that computes an answer, where it costs the process little.
    """

    def __init__(self, look: Callable[[Arguments], Look], choices: Choices, isolate: Isolate = _at_once) -> None:
        self._look = look
        self._choices = choices
        self._turn = threading.Lock()
        self._isolate = isolate
        self._answers: OrderedDict[tuple[object, ...], Answer] = OrderedDict()

    def pages(self) -> Mapping[str, Page]:
        first = {"/": "ui/pending", UI: "ui/pending", f"{UI}/": "pending"}
        pages: dict[str, Page] = {path: partial(_redirect, location) for path, location in first.items()}
        for name in _DOCUMENTS:
            pages[f"{UI}/{name}"] = partial(self._answer, "page", self._rendered, name)
            pages[f"{UI}/{name}.json"] = partial(self._answer, "json", self._encoded, name)
        return pages | {f"{UI}/{name}": partial(_asset, name, media_type) for name, media_type in _ASSETS.items()}

    def _answer(self, form: str, make: Make, name: str, query: Mapping[str, list[str]], _accept: str) -> Answer:
        """Returns the answer to one request, computed by `make` unless the same one was asked for a moment ago."""
        arguments = {key: values[0] for key, values in query.items()}
        if not self._turn.acquire(timeout=_PATIENCE_SECONDS):
            headers = (("Retry-After", "5"), *_HEADERS)
            return error_answer(503, "another page is being computed: try again soon", headers)
        look: Look | None = None
        try:
            look = self._look(arguments)
            key = (form, name, look.source, look.revision, *sorted(arguments.items()))
            if key in self._answers:
                self._answers.move_to_end(key)
                return self._answers[key]
            answer = self._isolate(partial(make, name, arguments, look))
            if answer.status == 200:
                self._answers[key] = answer
                if len(self._answers) > _MOST_CACHED:
                    self._answers.popitem(last=False)
            return answer
        except ExtenderError as error:
            return self._failed(error, name, look, arguments) if form == "page" else _json_error(error)
        finally:
            self._turn.release()

    def _rendered(self, name: str, arguments: Arguments, look: Look) -> Answer:
        try:
            document = _DOCUMENTS[name](look, arguments, self._choices)
            context = self._context(name, look, document, arguments)
        except ExtenderError as error:
            return self._failed(error, name, look, arguments)
        context["site"] = self._frame(name, look, arguments)
        template = _TEMPLATES.get(name, f"{name}.html")
        return Answer(200, rendering.page(template, document, _links(name, arguments), **context), _HTML, _HEADERS)

    def _encoded(self, name: str, arguments: Arguments, look: Look) -> Answer:
        asked = {key: value for key, value in arguments.items() if key != "at"}
        try:
            value = pointed_at(_DOCUMENTS[name](look, asked, self._choices), arguments.get("at", ""))
        except ExtenderError as error:
            return _json_error(error)
        return Answer(200, msgspec.json.format(msgspec.json.encode(value)) + b"\n", JSON, _HEADERS)

    def _failed(self, error: ExtenderError, name: str, look: Look | None, arguments: Arguments) -> Answer:
        site = self._frame(name, look, arguments)
        page = rendering.page("error.html", {"error": str(error)}, _links(name, arguments), site=site)
        return Answer(_status(error), page, _HTML, _HEADERS)

    def _frame(self, here: str, look: Look | None, arguments: Arguments) -> dict[str, Any]:
        timeline = look.timeline if look else None
        pages = [("pending", "Pending pods"), ("nodes", "Nodes")]
        pages += [("compare", "Compare")] if self._choices.others else []
        pages += [("steps", "Steps")] if timeline else []
        return {
            "here": here,
            "pages": pages,
            "kept": _carried(arguments),
            "arguments": {name: value for name, value in arguments.items() if name != "step"},
            "timeline": timeline,
            "source": look.source if look else "",
            "at": look.at if look else "",
            "version": f"extender {product_version()} (commit {product_commit()})",
            "documentation": documentation_address(),
        }

    def _context(self, name: str, look: Look, document: Document, arguments: Arguments) -> dict[str, Any]:
        if name == "pod":
            pod = look.state.info(document["pod"]).pod
            return {"nodes": all_nodes(look.state), "written": written_about(pod, look.state), "events": ()}
        if name == "steps":
            begin = look.timeline.step - _STEPS_BEFORE if look.timeline else 0
            return {"begin": max(begin, 0), "shown": document["steps"][max(begin, 0) :][:_MOST_LISTED]}
        if name == "compare":
            return {"names": document["names"], "choices": list(self._choices.others), "maps": document["maps"]}
        return self._nodes_context(look, document, arguments) if name == "nodes" else {}

    def _nodes_context(self, look: Look, document: Document, arguments: Arguments) -> dict[str, Any]:
        key, by, find = (arguments.get(name, "") for name in ("pod", "by", "find"))
        if not key and by not in document["resources"]:
            by = next(iter(document["resources"]), "")
        node_map: NodeMap = by_free_resource(document, by)
        if key and not by:
            node_map = by_verdict(document, pod(look, {"pod": key}, self._choices))
        matching = [{**row, "at": index} for index, row in enumerate(document["nodes"]) if find in row["name"]]
        pending = sorted(info.pod.key for info in look.state.pending)[:_MOST_LISTED]
        begin = position("from", arguments.get("from", "0"), max(len(matching) - 1, 0))
        return {
            "by": by,
            "pod": key,
            "find": find,
            "pending": pending,
            "drawn": node_map,
            "begin": begin,
            "listed": matching[begin : begin + _NODES_LISTED],
            "found": len(matching),
            "before": max(begin - _NODES_LISTED, 0) if begin else None,
            "after": begin + _NODES_LISTED if begin + _NODES_LISTED < len(matching) else None,
        }


def _carried(arguments: Arguments) -> Arguments:
    """Returns the arguments that links to other pages repeat: `step`, which selects a moment of a recording."""
    return {"step": arguments["step"]} if "step" in arguments else {}


def pointed_at(document: Any, pointer: str) -> Any:
    """Returns the value at a JSON pointer (RFC 6901). Raises MalformedRequest if there is no such value."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        try:
            document = document[position("at", key, len(document) - 1)] if isinstance(document, list) else document[key]
        except (KeyError, TypeError, MalformedRequest):
            raise MalformedRequest(f"?at={pointer}: the document has no such value") from None
    return document


def _redirect(location: str, _query: Mapping[str, list[str]], _accept: str) -> Answer:
    return Answer(302, b"", _HTML, (("Location", location), *_HEADERS))


def _asset(name: str, media_type: str, _query: Mapping[str, list[str]], _accept: str) -> Answer:
    return Answer(200, rendering.asset(name), media_type, _HEADERS)


def _links(name: str, arguments: Arguments) -> SiteLinks:
    return SiteLinks(name, arguments, _carried(arguments))


def _json_error(error: ExtenderError) -> Answer:
    return error_answer(_status(error), str(error), _HEADERS)


def _status(error: ExtenderError) -> int:
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
