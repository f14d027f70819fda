"""docs/versions.md, made of surveys."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from inspect import getsource

from extender.policy.policy import by_name
from extender.table import features
from extender.table.features import VERSIONS, KubernetesVersion
from tests.stock.build import NEXT_MINOR, NEXT_VERSION
from tests.versions.survey import GATES, Survey

INTRODUCTION = """\
# Versions of Kubernetes

This page shows the results of the end-to-end tests with kube-apiserver and kube-scheduler of each version, in their
default configuration: `extender serve` under the stock kube-scheduler, and `extender schedule` instead of it.
`make test-versions` builds and runs them, and writes this file.

## Which version is followed

kube-scheduler decides differently from version to version. The extender decides like one of 1.35 to 1.38:

1. the one in the setting `kubernetesVersion` (`--kubernetes-version`), which the commands that answer questions about a
   cluster have too, or else
2. the one in the policy's field `kubernetesVersion`, or else
3. for a live cluster or a snapshot, the one of its API server, or else
4. the newest released one: 1.37, and 1.38 from 16 December 2026 on.

A cluster newer than 1.38 counts as 1.38. `serve` and `schedule` ask the API server once a minute, and follow an upgrade
while they run; the log and `/configz` show it. `extender upgrade-check FILE --to 1.38` shows which recorded decisions,
or decisions about the pods of a snapshot, become others.

## Kubernetes 1.38

1.38 was compared as v1.38.0-beta.0: its scheduler's own plugins decide like the extender on 300 recorded cases, which
`make test` repeats, and on fresh ones of `make test-next`, which also runs the end-to-end tests with its kube-scheduler
beside kube-apiserver 1.37.1. Not tried, because its kube-apiserver cannot be built (a module that it needs is not
served): `serve` and `schedule` with an API server of 1.38, and the kinds and versions that only it serves, such as
CompositePodGroup at v1beta1. `make test-versions` tries to build it each time. `python -m tests.versions.changed`
lists the upstream files that have changed since v1.38.0-beta.0.

The behaviours that differ from 1.37 without a feature gate:

{behaviours}
What is said of groups needs the gates of pod groups. CompositePodGroups are read in v1beta1, or in v1alpha3 if the
server does not serve v1beta1. A group that waits for members keeps the extender's own words.

## Results
"""
_GATES = """
## Feature gates

These gates influence where pods are placed; the table shows their defaults, and a dash if the version does not have the
gate. Those of the version that is followed apply. For a cluster with other gates, set them with `--feature-gates` or in
a policy's `featureGates`. An error names those that can be set, and a gate that the version has removed or locked is
refused in kube-scheduler's words.
"""
NOT_SERVED = f"kube-apiserver {NEXT_VERSION} cannot be built: not served: k8s.io/apiextensions-api@v0.38.0-beta.0"
"""The obstacle that was found last; a run of some versions alone does not look for it."""
_SWITCH = {True: "on", False: "off", None: "-"}


def document(surveys: Mapping[str, Survey], obstacle: str = "") -> str:
    """Returns the whole file.

    Args:
        surveys: by minor version, oldest first.
        obstacle: why there is no survey of NEXT_MINOR; "" for the reason that was found last.
    """
    untried = {name: version for name, version in VERSIONS.items() if name not in surveys and name > max(surveys)}
    lines = [
        INTRODUCTION.format(behaviours=_behaviours()),
        "| Kubernetes | tests passed | failed | left out | not served |",
        f"|{'---|' * 5}",
    ]
    for each in surveys.values():
        counts = f"{each.passed} | {len(each.failed)} | {len(each.skipped)}"
        lines.append(f"| {each.version} | {counts} | {', '.join(each.unserved) or 'nothing'} |")
    if NEXT_MINOR not in surveys:
        lines.append(f"| {NEXT_VERSION} | not tried: {obstacle or NOT_SERVED} | | | |")
    lines += [
        "",
        "A kind that the API server does not serve counts as a kind without objects. A test is left out if it needs a",
        "feature that is off by default in that version. kube-scheduler 1.35 also sends the managedFields of pods to",
        "extenders, which the extender ignores.",
        *_tests(surveys),
        _GATES,
        f"| gate | {' | '.join([*surveys, *untried])} |\n|---|{'---|' * (len(surveys) + len(untried))}",
    ]
    for gate in dict.fromkeys(GATES):
        switches = [_SWITCH[each.gates.get(gate)] for each in surveys.values()]
        lines.append(f"| {gate} | {' | '.join([*switches, *(_default(gate, each) for each in untried.values())])} |")
    return "\n".join(lines) + "\n"


def _default(gate: str, version: KubernetesVersion) -> str:
    """Returns the default that the extender takes for a version that was not surveyed."""
    if gate in version.gone:
        return "-"
    return _SWITCH[gate in version.locked or by_name(version.features).get(gate, True)]


def _behaviours() -> str:
    """Returns the table of the behaviours, from the docstrings of their fields."""
    source = ast.parse(getsource(features))
    body = next(each.body for each in source.body if isinstance(each, ast.ClassDef) and each.name == "Behaviours")
    texts = [
        each.value.value for each in body[1:] if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
    ]
    rows = (" ".join(str(text).split("Upstream:")[0].split()) for text in texts)
    return "".join(f"- {row}\n" for row in rows)


def _tests(surveys: Mapping[str, Survey]) -> Iterator[str]:
    """Yields a list of the tests that failed or were left out, if there are any."""
    if any(each.failed or each.skipped for each in surveys.values()):
        yield ""
    for minor, each in surveys.items():
        for name in each.failed:
            yield f"- {minor}, failed: `{name}`"
        for name, reason in each.skipped.items():
            yield f"- {minor}, left out: `{name}`: {reason}"
