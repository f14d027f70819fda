"""The form of a verb, and what verbs share: the scheduler may call it over HTTP, without any HTTP here.

`ObservedVerb` is one whose calls others hear of. `requested_nodes` finds the nodes that filter and prioritize are asked
about as rows of tables: nodes that the cache knows are checked as the cache knows them; whole nodes that it does not
know, such as the templates an autoscaler tries, by the request alone, in a table of their own that is thrown away.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from extender.extender_v1.types import ExtenderArgs
from extender.table import PodInfo, Table
from extender.table.features import FeatureGates
from extender.table.labels import Rows

Request = TypeVar("Request")
Result = TypeVar("Result")


class Summary(NamedTuple):
    """One call for the log: how many nodes were asked about, and how many are left."""

    nodes_in: int
    nodes_out: int


class Verb(Protocol[Request, Result]):
    """One of filter, prioritize, preempt, bind."""

    @property
    def name(self) -> str: ...

    def decode(self, body: bytes) -> Request:
        """Returns the request.

        Raises:
            MalformedRequest: the body is not this verb's payload.
        """
        ...

    def decide(self, request: Request) -> Result:
        """Returns the answer. An error that concerns one pod is in the answer; only a defect raises."""
        ...

    def allow_all(self, request: Request) -> Result:
        """Returns the answer that changes nothing."""
        ...

    def failed(self, request: Request, message: str) -> Result | None:
        """Returns the answer that carries an error; None where the verb has no field for it."""
        ...

    def encode(self, request: Request, result: Result) -> bytes:
        """Returns the answer's bytes, after it was validated against the request.

        Raises:
            InvalidAnswer: the answer would hurt the scheduler.
        """
        ...

    def summary(self, request: Request, result: Result) -> Summary:
        """Returns the call as the log shows it."""
        ...


DECIDED, PASSED, FAILED = "decided", "passed", "failed"
"""The outcomes: judged by the rules; let through unjudged; no answer but an error."""


class CallObserver(Protocol):
    """Hears of every call in the thread that made it, before the answer leaves; must be quick, and not raise."""

    def called(self, verb: str, outcome: str, request: object, result: object, error: str = "") -> None:
        """`result` is None where there is none but `error`."""


class ObservedVerb(Generic[Request, Result]):
    """A Verb that does as another, and tells of it."""

    def __init__(self, verb: Verb[Request, Result], observers: Sequence[CallObserver]) -> None:
        self.name, self.decode, self.encode, self.summary = verb.name, verb.decode, verb.encode, verb.summary
        self._verb, self._observers = verb, observers

    def decide(self, request: Request) -> Result:
        return self._told(DECIDED, request, self._verb.decide(request))

    def allow_all(self, request: Request) -> Result:
        return self._told(PASSED, request, self._verb.allow_all(request))

    def failed(self, request: Request, message: str) -> Result | None:
        for observer in self._observers:
            observer.called(self.name, FAILED, request, None, message)
        return self._verb.failed(request, message)

    def _told(self, outcome: str, request: Request, result: Result) -> Result:
        for observer in self._observers:
            observer.called(self.name, outcome, request, result)
        return result


def place_kept_for(info: PodInfo, table: Table) -> str:
    """Returns the node where the pod counts though no watch has told so, "" for none: bind binds it nowhere else."""
    slot = table.pods.slot_of.get(info.uid)
    if slot is None or table.pods.info(slot).pod.node_name:
        return ""
    row = table.pods.row[slot]
    return table.nodes.names[row] if table.nodes.present[row] else ""


class Part(NamedTuple):
    """Rows of one table, and where in the request's names they stand: intp[n] each."""

    table: Table
    rows: Rows
    positions: NDArray[np.intp]


class RequestedNodes(NamedTuple):
    """The request's names, each once, the parts to decide on, and the names that nobody knows."""

    names: list[str]
    parts: Sequence[Part]
    unknown: Sequence[str]


def requested_nodes(args: ExtenderArgs, table: Table) -> RequestedNodes:
    """Returns the nodes of the request, looked up in `table`."""
    names, nodes = args.names, table.nodes
    rows = nodes.rows_of(names)
    if rows is None:  # a name is unknown, or is there twice
        names = list(dict.fromkeys(names))
        rows = np.fromiter(map(nodes.row_of.get, names, repeat(-1)), np.intp, len(names))
    elif np.count_nonzero(nodes.present[rows]) == len(rows):
        return RequestedNodes(names, [Part(table, rows, np.arange(len(names)))], ())
    known = (rows >= 0) & nodes.present[rows]
    parts = [Part(table, rows[known], np.flatnonzero(known))]
    unknown = [(position, names[position]) for position in np.flatnonzero(~known).tolist()]
    if args.node_names is None:
        parts.append(_nodes_outside_cache(args, dict(unknown), table.features))
        unknown = []
    return RequestedNodes(names, parts, [name for _, name in unknown])


def _nodes_outside_cache(args: ExtenderArgs, unknown: dict[int, str], features: FeatureGates) -> Part:
    sent = {node.name: node for node in args.nodes or ()}
    table = Table(features)
    for name in unknown.values():
        table.set_node(sent[name].node)
    rows = np.array([table.nodes.row_of[name] for name in unknown.values()], np.intp)
    return Part(table, rows, np.array(list(unknown), np.intp))
