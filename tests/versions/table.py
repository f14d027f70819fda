"""docs/versions.md, made of surveys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.versions.survey import GATES, Survey

INTRODUCTION = """\
# Versions of Kubernetes

This page shows the results of the end-to-end tests with kube-apiserver and kube-scheduler of each version, in their
default configuration: `extender serve` under the stock kube-scheduler, and `extender schedule` instead of it.
`make test-versions` builds and runs them, and writes this file.
"""
_GATES = """
## Feature gates

These gates influence where pods are placed; the table shows their defaults, and a dash if the version does not have the
gate. The extender uses the defaults of the newest version. For a cluster with other gates, set them with
`--feature-gates` or in a policy's `featureGates`.
"""
_SWITCH = {True: "on", False: "off", None: "-"}


def document(surveys: Mapping[str, Survey]) -> str:
    """Returns the whole file; `surveys` by minor version, oldest first."""
    lines = [INTRODUCTION, "| Kubernetes | tests passed | failed | left out | not served |", f"|{'---|' * 5}"]
    for each in surveys.values():
        counts = f"{each.passed} | {len(each.failed)} | {len(each.skipped)}"
        lines.append(f"| {each.version} | {counts} | {', '.join(each.unserved) or 'nothing'} |")
    lines += [
        "",
        "A kind that the API server does not serve counts as a kind without objects. A test is left out if it needs a",
        "feature that is off by default in that version. kube-scheduler 1.35 also sends the managedFields of pods to",
        "extenders, which the extender ignores.",
        *_tests(surveys),
        _GATES,
        f"| gate | {' | '.join(surveys)} |\n|---|{'---|' * len(surveys)}",
    ]
    for gate in GATES:
        switches = (_SWITCH[each.gates.get(gate)] for each in surveys.values())
        lines.append(f"| {gate} | {' | '.join(switches)} |")
    return "\n".join(lines) + "\n"


def _tests(surveys: Mapping[str, Survey]) -> Iterator[str]:
    """Yields a list of the tests that failed or were left out, if there are any."""
    if any(each.failed or each.skipped for each in surveys.values()):
        yield ""
    for minor, each in surveys.items():
        for name in each.failed:
            yield f"- {minor}, failed: `{name}`"
        for name, reason in each.skipped.items():
            yield f"- {minor}, left out: `{name}`: {reason}"
