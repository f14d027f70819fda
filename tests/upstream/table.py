"""docs/conformance.md, made of ginkgo's reports."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.stock.build import KUBERNETES_VERSION

Results = Mapping[str, Mapping[str, Mapping[str, list[str]]]]
"""The states of the last runs, oldest first, by mode by spec by group."""

LAST_RUNS = 3
INTRODUCTION = f"""\
# Conformance

Kubernetes' own end-to-end specs of v{KUBERNETES_VERSION} against the stock scheduler, the stock scheduler with this
extender (webhook), and `extender schedule` (loop), on a real control plane whose kubelets are fakes. `make
test-upstream` builds and runs them, and writes this file. Specs that need a real kubelet are left out.

The table counts the last {LAST_RUNS} runs of each spec, or all runs if there are fewer.
A spec passes if it passed in each of them.
"""


def results_of(reports: Mapping[tuple[str, str], list[Path]]) -> Results:
    """Reads the reports by (group, mode), oldest first. A report may hold some specs of its group only."""
    found: defaultdict[str, defaultdict[str, dict[str, list[str]]]] = defaultdict(lambda: defaultdict(dict))
    for (group, mode), paths in reports.items():
        for path in paths:
            for name, state in _specs(json.loads(path.read_text())):
                states = found[group][name].setdefault(mode, [])
                states.append(state)
                del states[:-LAST_RUNS]
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
            states = (_state(specs[name].get(mode, [])) for mode in modes)
            lines.append(f"| {name.replace('|', '/')} | {' | '.join(states)} |")
    return "\n".join(lines) + "\n"


def _state(states: list[str]) -> str:
    """Returns "passed 2 of 3" for two of three runs, a "skipped", or "-" where there was none."""
    if set(states) <= {"skipped"}:
        return states[-1] if states else "-"
    return f"passed {states.count('passed')} of {len(states)}"


def _passed(specs: Mapping[str, Mapping[str, list[str]]], mode: str) -> str:
    runs = [states for by_mode in specs.values() if set(states := by_mode.get(mode, [])) - {"skipped"}]
    if not runs:
        return "-"
    times = min(map(len, runs))
    passed = sum(set(states) == {"passed"} for states in runs)
    return f"{passed} of {len(runs)}, {times} {'run' if times == 1 else 'runs'}"


def worse(results: Results, modes: list[str]) -> list[str]:
    """Names what passed in the last run under the stock scheduler and not under another mode."""
    return [
        f"{mode}: {name}: {states[mode][-1]}"
        for specs in results.values()
        for name, states in specs.items()
        for mode in modes
        if states.get("stock", [""])[-1] == "passed" and states.get(mode, ["passed"])[-1] not in ("passed", "skipped")
    ]
