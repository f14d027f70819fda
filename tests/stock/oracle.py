"""The stock scheduler's own plugins, asked case by case. Forms: `go/stock/oracle/{main,answer}.go`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

Object = dict[str, Any]


class Oracle:
    """A running oracle; a question takes some milliseconds. `with Oracle(binaries["oracle"]) as oracle: ...`."""

    def __init__(self, executable: Path, *flags: str) -> None:
        self._command = [str(executable), *flags]

    def __enter__(self) -> Self:
        self._start()
        return self

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def answer(self, objects: Iterable[Object], pod: Object, config: Mapping[str, Any] | None = None) -> Object:
        """What the plugins decide for the pod in a cluster of these objects, under the configuration's first profile.

        A case that cannot be answered has its reason under "error". One that kube-scheduler itself crashes on cannot:
        v1.37.1 does where NodeResourcesBalancedAllocation is to look at devices that a class selects by CEL.
        """
        case = {"cluster": {"items": list(objects)}, "pod": pod} | ({} if config is None else {"config": config})
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._process.communicate()
            self._start()
            return {"error": "the plugins crashed"}
        answer: Object = json.loads(line)
        return answer


def bench(executable: Path, cases: Iterable[Object], rounds: int = 15) -> list[Object]:
    """Median times of each case: see `go/stock/oracle/bench.go`."""
    result = subprocess.run(
        [executable, "--bench", str(rounds)],
        input="\n".join(map(json.dumps, cases)),
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in result.stdout.splitlines()]
