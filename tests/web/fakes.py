"""A verb whose requests say what it should do, and an application that serves four of them."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from extender.config.settings import Settings
from extender.errors import DeadlineExceeded, InvalidAnswer, MalformedRequest
from extender.extender_v1 import messages
from extender.model.meta import ObjectMeta
from extender.model.pod import Pod
from extender.runtime.clock import SystemClock
from extender.verbs.verb import Summary
from extender.web.app import Backend, ExtenderApp, create_app
from extender.web.metrics import Metrics


class ScriptedArgs(messages.ExtenderArgs, frozen=True):
    """The requests of filter, prioritize and preempt here."""

    do: str = ""


class ScriptedBinding(messages.ExtenderBindingArgs, frozen=True):
    """The requests of bind here."""

    do: str = ""


Scripted = ScriptedArgs | ScriptedBinding
Answered = (
    messages.HostPriorityList
    | messages.ExtenderPreemptionResult
    | messages.ExtenderBindingResult
    | messages.ExtenderFilterResult
)


@dataclass
class ScriptedVerb:
    """Its requests say what is to happen: {"pod": "namespace/name", "labels": {}, "nodes": [...], "do": ACTION}.

    ACTION: "raise", "raise in decode", "unsafe" (encode refuses), "refuse" (an Error), "until:FILE" (waits for the
    file). A decision keeps the first node; to pass keeps all.
    """

    name: str
    decided: list[Scripted] = field(default_factory=list)
    let_pass: list[Scripted] = field(default_factory=list)

    @property
    def tells_errors(self) -> bool:
        return self.name in ("filter", "bind")

    def decode(self, body: bytes) -> Scripted:
        try:
            script = json.loads(body)
        except ValueError as error:
            raise MalformedRequest(f"not JSON: {error}") from None
        if script.get("do") == "raise in decode":
            raise RuntimeError("scripted")
        namespace, _, name = script.get("pod", "default/pod").partition("/")
        if self.name == "bind":
            return ScriptedBinding(name, namespace, "uid-1", "a", script.get("do", ""))
        pod = Pod(metadata=ObjectMeta(name=name, namespace=namespace, uid="uid-1", labels=script.get("labels")))
        return ScriptedArgs(pod, script.get("nodes", []), None, do=script.get("do", ""))

    def decide(self, request: Scripted) -> Answered:
        self.decided.append(request)
        action, _, argument = request.do.partition(":")
        if action == "raise":
            raise RuntimeError("scripted")
        if action == "late":
            raise DeadlineExceeded("no decision within 4 s")
        if action == "until":
            print("held", file=sys.stderr, flush=True)
            while not Path(argument).exists():
                time.sleep(0.01)
        return self._answer(_names(request)[:1], "no" if action == "refuse" else "")

    def allow_all(self, request: Scripted) -> Answered:
        self.let_pass.append(request)
        return self._answer(_names(request), "")

    def failed(self, request: Scripted, message: str) -> Answered | None:
        return self._answer([], message) if self.tells_errors else None

    def encode(self, request: Scripted, result: Answered) -> bytes:
        if request.do == "unsafe":
            raise InvalidAnswer("scripted")
        if isinstance(result, messages.ExtenderFilterResult):
            return messages.encode_filter(result)
        return (
            messages.encode_priorities(result)
            if isinstance(result, messages.HostPriorityList)
            else messages.encode(result)
        )

    def summary(self, request: Scripted, result: Answered) -> Summary:
        return Summary(len(_names(request)), len(getattr(result, "node_names", None) or ()))

    def _answer(self, names: list[str], error: str) -> Answered:
        if self.name == "bind":
            return messages.ExtenderBindingResult(error)
        if self.name == "filter":
            return messages.ExtenderFilterResult(node_names=names, error=error)
        return messages.HostPriorityList(names, np.ones(len(names), np.int64))


def _names(request: Scripted) -> list[str]:
    return request.names if isinstance(request, ScriptedArgs) else []


@dataclass
class Running:
    """The state that tests look at: started and stopped once each, and what readiness waits for."""

    started: int = 0
    stopped: int = 0
    missing: str | None = None

    def start(self) -> None:
        self.started += 1

    def stop(self) -> None:
        self.stopped += 1

    def compare(self) -> None:
        pass

    def waiting_for(self) -> dict[str, str | None]:
        return {"cache": self.missing}


@dataclass
class Fixture:
    """An application and all that it was made of."""

    app: ExtenderApp
    metrics: Metrics
    running: Running
    verbs: dict[str, ScriptedVerb]

    def count(self, name: str, **labels: str) -> float:
        """A sample, as a scrape would have it."""
        self.app.test_client().get("/metrics")
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


made: list[ExtenderApp] = []
"""The applications of `make_app`. A fixture stops them after each test, because a started one goes on logging."""


def make_app(running: Running | None = None, **settings: Any) -> Fixture:
    running = running or Running()
    verbs = {name: ScriptedVerb(name) for name in ("filter", "prioritize", "preempt", "bind")}
    metrics = Metrics(SystemClock(), "0.0.test")
    metrics.observe(lambda: {"nodes": 3, "pods": 5, "assumed_pods": 1}, lambda: {"lease": True})
    service = Backend(tuple(verbs.values()), running.waiting_for, running.start, running.stop, compare=running.compare)
    made.append(create_app(service, Settings(**settings), metrics))
    return Fixture(made[-1], metrics, running, verbs)
