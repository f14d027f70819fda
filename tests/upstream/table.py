"""docs/conformance.md, made of ginkgo's reports."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.stock.build import KUBERNETES_VERSION

Results = Mapping[str, Mapping[str, Mapping[str, str]]]
"""State by mode by spec by group."""

INTRODUCTION = f"""\
# Conformance

Kubernetes' own end-to-end specs of v{KUBERNETES_VERSION} against the stock scheduler, the stock scheduler with this
extender (webhook), and `extender schedule` (loop), on a real control plane whose kubelets are fakes. `make
test-upstream` builds and runs them, and writes this file. Specs that need a real kubelet are left out.
"""


def results_of(reports: Mapping[tuple[str, str], Path]) -> Results:
    """Reads the reports that are there, by (group, mode)."""
    found: defaultdict[str, defaultdict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for (group, mode), path in reports.items():
        if path.exists():
            for name, state in _specs(json.loads(path.read_text())):
                found[group][name][mode] = state
    return found


def _specs(report: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yields (name, state) of the specs that were to be run; one that skips itself counts."""
    for spec in report[0]["SpecReports"]:
        left_out = spec["State"] == "pending" or (spec["State"] == "skipped" and not spec.get("Failure"))
        if spec["LeafNodeType"] == "It" and not left_out:
            yield " ".join([*(spec.get("ContainerHierarchyTexts") or ()), spec["LeafNodeText"]]), spec["State"]


def document(results: Results, modes: list[str]) -> str:
    header = f"{' | '.join(modes)} |\n|---|{'---|' * len(modes)}"
    lines = [INTRODUCTION, f"| specs passed | {header}"]
    for group, specs in results.items():
        lines.append(f"| {group} | {' | '.join(_passed(specs, mode) for mode in modes)} |")
    for group, specs in results.items():
        lines += [f"\n## {group.capitalize()}\n", f"| spec | {header}"]
        for name in sorted(specs):
            states = (specs[name].get(mode, "-") for mode in modes)
            lines.append(f"| {name.replace('|', '/')} | {' | '.join(states)} |")
    return "\n".join(lines) + "\n"


def _passed(specs: Mapping[str, Mapping[str, str]], mode: str) -> str:
    states = [states[mode] for states in specs.values() if mode in states]
    run = [state for state in states if state != "skipped"]
    return f"{run.count('passed')} of {len(run)}" if run else "-"


def worse(results: Results, modes: list[str]) -> list[str]:
    """Names what passes under the stock scheduler and not under another mode."""
    return [
        f"{mode}: {name}: {states[mode]}"
        for specs in results.values()
        for name, states in specs.items()
        for mode in modes
        if states.get("stock") == "passed" and states.get(mode, "passed") not in ("passed", "skipped")
    ]
