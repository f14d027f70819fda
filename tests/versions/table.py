"""docs/versions.md, made of surveys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.versions.survey import GATES, Survey

INTRODUCTION = """\
# Versions of Kubernetes

The end-to-end tests (`extender serve` under the stock kube-scheduler, `extender schedule` in its place) with
kube-apiserver and kube-scheduler of each version, as released and with their defaults. `make test-versions` builds and
runs them, and writes this file.
"""
_GATES = """
## Feature gates

Those that decide where pods go, by default; a dash is one that the version does not have. The extender decides as the
newest of these versions: for a cluster of another, give it that cluster's gates (`--feature-gates`, or a policy's
`featureGates`) where it knows them.
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
        "Kinds that are not served are taken for kinds without objects. A test is left out where it needs a feature",
        "that is off by default in that version, and of no effect there. kube-scheduler 1.35 sends extenders the",
        "managedFields of pods too, which nothing reads here.",
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
