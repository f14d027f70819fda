"""The stock scheduler's own plugins, asked case by case. Forms: `go/stock/oracle/{main,answer,bench,loop}.go`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

Object = dict[str, Any]


_ALL_CANDIDATES: Object = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "pluginConfig": [{"name": "DefaultPreemption", "args": {"minCandidateNodesPercentage": 100}}],
        }
    ],
}
"""Preemption tries every node, as decisions on a snapshot do."""


class OracleError(Exception):
    """The oracle ended, or could not do what it was asked for."""


class _Conversation:
    """A running program that reads and writes lines of JSON."""

    def __init__(self, executable: Path, *flags: str) -> None:
        self._command = [str(executable), *flags]

    def __enter__(self) -> Self:
        self._start()
        return self

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def _send(self, value: Object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def _receive(self) -> Object | None:
        """Returns the next line; None where the program has ended, perhaps in the midst of it."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else None


class Oracle(_Conversation):
    """A running oracle; a question takes some milliseconds. `with Oracle(binaries["oracle"]) as oracle: ...`."""

    def answer(self, objects: Iterable[Object], pod: Object, config: Mapping[str, Any] | None = None) -> Object:
        """Returns what the plugins decide for the pod among these objects, under its profile of the configuration.

        A case that cannot be answered has its reason under "error". One that kube-scheduler itself crashes on cannot:
        v1.37.1 does where NodeResourcesBalancedAllocation is to look at devices that a class selects by CEL.
        """
        question = {"cluster": {"items": list(objects)}, "pod": pod} | ({} if config is None else {"config": config})
        for _ in range(2):  # the first time it may be the question before that it crashes on, after its answer
            answer = self._asked(question)
            if answer is not None:
                return answer
            self._process.kill()
            with suppress(BrokenPipeError):  # what it has not read of the question
                self._process.communicate()
            self._start()
        return {"error": "the plugins crashed"}

    def _asked(self, question: Object) -> Object | None:
        """Returns the answer; None where the program has ended, or is about to."""
        try:
            self._send(question)
        except BrokenPipeError:
            return None
        answer = self._receive()
        return None if answer is None or answer.get("error", "").startswith("panic") else answer


class GroupOracle(_Conversation):
    """The stock scheduler's cycle for a pod group, with the gates for groups on; one group a case."""

    def __init__(self, executable: Path, *gates: str) -> None:
        on = ",".join(f"{gate}=true" for gate in ("GenericWorkload", *gates))
        off = "OpportunisticBatching=false,SchedulerAsyncPreemption=false"  # so that the cycle waits for its evictions
        super().__init__(executable, "--groups", f"--feature-gates={off},{on}")

    def answer(self, case: Object) -> Object:
        """Returns how the cycle went (see GroupAnswer in groups.go); `error` says why a case has no answer."""
        self._send(case)
        answer = self._receive()
        if answer is None:
            self._process.kill()
            self._process.communicate()
            self._start()
            return {"error": "the scheduler crashed"}
        return answer


class TimedOracle(_Conversation):
    """The stock scheduler timed on one cluster: `with TimedOracle(binaries["oracle"], objects) as stock: ...`.

    `loop`: it places pods one after another (`place`), instead of giving all it decided about each (`step`).
    """

    def __init__(self, executable: Path, objects: Iterable[Object], *, loop: bool = False) -> None:
        super().__init__(executable, "--loop" if loop else "--bench")
        self._case = {"cluster": {"items": list(objects)}, "config": _ALL_CANDIDATES}

    def __enter__(self) -> Self:
        self._start()
        self._send(self._case)
        return self

    def step(self, pod: Object, bind: Object) -> Object:
        """Returns the timed decision for `pod` (see Timing in bench.go), and then adds `bind`, a pod with its node.

        Raises OracleError where there is none.
        """
        return self._answered({"pod": pod, "bind": bind})

    def place(self, pods: Iterable[Object]) -> Object:
        """Returns how long all pods took and how many found a node (see Placed in loop.go).

        Raises OracleError where one cannot be decided.
        """
        return self._answered({"pods": list(pods)})

    def _answered(self, question: Object) -> Object:
        self._send(question)
        answer = self._receive()
        if answer is None or "error" in answer:
            raise OracleError((answer or {}).get("error", "the oracle ended"))
        return answer
