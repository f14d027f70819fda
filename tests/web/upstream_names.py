"""Reads the names of all metrics, events and conditions of kube-scheduler from its Go source.

`python -m tests.web.upstream_names` writes the recording again.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.stock.build import KUBERNETES_VERSION, find_go

RECORDING = Path(__file__).with_name("kube-scheduler-names.json")
MODULES = Path(__file__).parents[1] / "stock/go/stock"
Names = dict[str, list[str]]
_METRIC = re.compile(r"Subsystem:\s*(\"\w+\"|\w+),\s*Name:\s*\"(\w+)\"|NewDesc\(\"(\w+)\"")
_EVENT = re.compile(r'Eventf\(.*?v1\.EventType\w+, "(\w+)", "(\w+)"')
_CONDITION = re.compile(r"Type:\s*(?:v1|schedulingapi)\.(PodScheduled|DisruptionTarget|PodGroup\w+)\b")
_REASON = re.compile(r"\b(?:PodReason|PodGroupReason)(\w+)")


def names(scheduler: Path, claims: Path) -> Names:
    """Returns what is defined in pkg/scheduler and in the metrics of claims, each name once."""
    texts = [path.read_text() for path in _sources(scheduler)]
    metrics = [name for text in (*texts, *(path.read_text() for path in _sources(claims))) for name in _metrics(text)]
    return {
        "version": [KUBERNETES_VERSION],
        "metrics": sorted(set(metrics)),
        "events": sorted({reason for text in texts for reason, _ in _EVENT.findall(text)}),
        "conditions": sorted({name for text in texts for name in _CONDITION.findall(text)}),
        "reasons": sorted({name for text in texts for name in _REASON.findall(text)}),
    }


def read() -> Names:
    """Returns the names in the source of the version that the tests build."""
    kubernetes, claims = _module("k8s.io/kubernetes"), _module("k8s.io/dynamic-resource-allocation")
    return names(kubernetes / "pkg/scheduler", claims / "resourceclaim/metrics")


def _module(name: str) -> Path:
    command = [find_go(), "list", "-m", "-f", "{{.Dir}}", name]
    return Path(subprocess.run(command, cwd=MODULES, capture_output=True, text=True, check=True).stdout.strip())


def _sources(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*.go")) if not re.search(r"_test\.go$|/testing/", str(path)))


def _metrics(text: str) -> Iterator[str]:
    constants = dict(re.findall(r'(\w+)\s*=\s*"(\w+)"', text))
    for subsystem, name, described in _METRIC.findall(text):
        prefix = constants.get(subsystem, subsystem.strip('"')) if subsystem else ""
        yield described or (f"{prefix}_{name}" if prefix else name)


if __name__ == "__main__":
    RECORDING.write_text(json.dumps(read(), indent=1) + "\n")
