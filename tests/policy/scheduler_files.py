"""Generated files for kube-scheduler's --config: valid ones, and ones with a few mistakes of every kind.

`verdict` asks the real kube-scheduler if it starts with a file. `python -m tests.policy.scheduler_files` writes the
verdicts on the first 100 files to scheduler_verdicts.json, for `make test`.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from extender.plugins.registry import IN_TREE
from tests.stock.build import build

Object = dict[str, Any]
POINTS = (
    "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit",
    "preBind", "bind", "postBind", "multiPoint", "placementGenerate", "placementScore", "podGroupPostFilter",
)  # fmt: skip
FOREIGN = ("Coscheduling", "OutOfTree", "NodeLabel", "EBSLimits", "nodeaffinity", "", "*", "rules:refuse")
NAMES = (*IN_TREE, *FOREIGN)
DURATIONS = ("5s", "15s", "1m30s", "1.5h", "100ms", "+2s", "2.s")
ODD_DURATIONS = ("0s", "-3s", "0", "5", "", "1d", "10", ".5s", "1h-1m", "-0", "9999999h", "1µs", "1s1s", ".s")
KEYS = ("zone", "topology.kubernetes.io/zone", "example.com/gpu")
ODD_KEYS = ("", "a b", "cpu", "Example.com/x", "a/b/c", "kubernetes.io/x", "requests.example.com/x", "-a")
CA = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCmVBPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="  # PEM, but no certificate
VALUES: tuple[Any, ...] = (
    None, "", "x", "*", "yes", 0, 1, -1, 5, 100, 101, 2**31, 2**63, 16.0, 1.5, 1e3, True, False, [], {}, [None], ["x"],
    [{}], {"a": 1}, "5s", "-5s", "16", [1], "true",
)  # fmt: skip


def scheduler_file(seed: int) -> str:
    """Returns the text of a file; about half of them are such as kube-scheduler starts with."""
    dice = random.Random(seed)
    document = _configuration(dice)
    for _ in range(dice.choice((0, 0, 0, 1, 1, 2))):
        _mutate(dice, document)
    connection = document.get("clientConnection")
    if isinstance(connection, dict):
        connection.pop("kubeconfig", None)  # kube-scheduler needs the file, which no other machine has
    if dice.random() < 0.15:
        return json.dumps(document, indent=dice.choice((None, 2)))
    text: str = yaml.safe_dump(document, sort_keys=False, default_flow_style=dice.choice((None, False)))
    return _in_text(dice, text)


def verdict(scheduler: Path, file: Path) -> str:
    """Returns "" if kube-scheduler starts with the file, else what it says."""
    out = file.with_suffix(".out")
    out.unlink(missing_ok=True)
    command: list[str | Path] = [scheduler, "--config", file, "--master", "http://127.0.0.1:1", "--secure-port", "0"]
    run = subprocess.run([*command, "--write-config-to", out], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode in (0, 1), run.stderr
    return "" if run.returncode == 0 and out.exists() else run.stderr.strip().splitlines()[-1]


def _configuration(dice: random.Random) -> Object:
    fields: dict[str, Callable[[], Any]] = {
        "parallelism": lambda: dice.choice((1, 16, 64, 16.0)),
        "leaderElection": lambda: _leader_election(dice),
        "clientConnection": lambda: _some(
            dice,
            {
                "kubeconfig": lambda: "",
                "acceptContentTypes": lambda: "application/json",
                "contentType": lambda: "application/vnd.kubernetes.protobuf",
                "qps": lambda: dice.choice((50, 5.5, -1, 0)),
                "burst": lambda: dice.choice((0, 100)),
            },
        ),
        "enableProfiling": lambda: dice.choice((True, False)),
        "enableContentionProfiling": lambda: dice.choice((True, False)),
        "percentageOfNodesToScore": lambda: dice.choice((0, 50, 100)),
        "podInitialBackoffSeconds": lambda: dice.choice((1, 2, 10)),
        "podMaxBackoffSeconds": lambda: dice.choice((10, 60)),
        "profiles": lambda: _profiles(dice),
        "extenders": lambda: [_extender(dice) for _ in range(dice.choice((1, 1, 2)))],
        "delayCacheUntilActive": lambda: dice.choice((True, False)),
    }
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return {**head, **_some(dice, fields)}


def _mostly(dice: random.Random, usual: Sequence[Any], odd: Sequence[Any]) -> Any:
    return dice.choice(odd if dice.random() < 0.08 else usual)


def _some(dice: random.Random, fields: dict[str, Callable[[], Any]]) -> Object:
    return {name: draw() for name, draw in fields.items() if dice.random() < 0.45}


def _leader_election(dice: random.Random) -> Object:
    return _some(
        dice,
        {
            "leaderElect": lambda: dice.choice((True, False)),
            "leaseDuration": lambda: _mostly(dice, ("15s", "30s", "137s"), (*DURATIONS, *ODD_DURATIONS)),
            "renewDeadline": lambda: _mostly(dice, ("10s", "5s"), ("107s", *ODD_DURATIONS)),
            "retryPeriod": lambda: _mostly(dice, ("2s", "1s"), ODD_DURATIONS),
            "resourceLock": lambda: _mostly(dice, ("leases", ""), ("endpointsleases", "Leases")),
            "resourceName": lambda: "kube-scheduler",
            "resourceNamespace": lambda: dice.choice(("kube-system", "")),
        },
    )


def _profiles(dice: random.Random) -> list[Object]:
    names = dice.sample(("default-scheduler", "batch", "gpu", "a b"), _mostly(dice, (1, 1, 2), (3,)))
    fields: dict[str, Callable[[], Any]] = {
        "percentageOfNodesToScore": lambda: dice.choice((0, 100)),
        "plugins": lambda: _plugins(dice),
        "pluginConfig": lambda: _plugin_config(dice),
    }
    return [
        {**({"schedulerName": name} if len(names) > 1 or dice.random() < 0.5 else {}), **_some(dice, fields)}
        for name in names
    ]


def _plugins(dice: random.Random) -> Object:
    plugins: Object = {}
    for point in dice.sample(POINTS, dice.choice((0, 1, 1, 2, 3))):
        named = [name for name, plugin in IN_TREE.items() if point == "multiPoint" or plugin.extends(point)]
        if dice.random() < 0.04:
            named = list(NAMES)
        plugins[point] = {}
        if named and dice.random() < 0.7:
            names = dice.sample(named, min(len(named), dice.choice((1, 1, 2))))
            weights = (1, 5, 0, 100, 2**31 - 1)
            plugins[point]["enabled"] = [
                {"name": name, **({"weight": dice.choice(weights)} if dice.random() < 0.4 else {})} for name in names
            ]
        if dice.random() < 0.5:
            disabled = dice.sample(NAMES, dice.choice((1, 2))) if dice.random() < 0.7 else ["*"]
            plugins[point]["disabled"] = [{"name": name} for name in disabled]
        if point == "multiPoint" and {"name": "*"} in plugins[point].get("disabled", ()) and dice.random() < 0.7:
            plugins[point].setdefault("enabled", [])
            plugins[point]["enabled"] += [{"name": "PrioritySort"}, {"name": "DefaultBinder"}]
    return plugins


def _plugin_config(dice: random.Random) -> list[Object]:
    entries: list[Object] = []
    for name in dice.sample(
        (*ARGUMENTS, *(("OutOfTree", "TaintToleration", "EBSLimits", "", *ARGUMENTS) if dice.random() < 0.2 else ())),
        dice.choice((1, 1, 2, 3)),
    ):
        args = ARGUMENTS[name](dice) if name in ARGUMENTS else {"a": 1}
        if name in ARGUMENTS and dice.random() < 0.3:
            args = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": f"{name}Args", **args}
        entries.append({"name": name, **({"args": args} if dice.random() < 0.9 else {})})
    return entries


def _shape(dice: random.Random) -> list[Object]:
    points = dice.sample(range(0, 101, 10), dice.choice((1, 2, 3)))
    points = sorted(points) if dice.random() < 0.95 else points
    return [{"utilization": point, "score": dice.choice((0, 5, 10))} for point in points]


def _resources(dice: random.Random, weights: tuple[int, ...]) -> list[Object]:
    names = dice.sample(("cpu", "memory", "example.com/gpu", ""), dice.choice((0, 1, 2)))
    return [{"name": name, **({"weight": dice.choice(weights)} if dice.random() < 0.6 else {})} for name in names]


def _strategy(dice: random.Random) -> Object:
    strategy: Object = {"resources": _resources(dice, (0, 1, 100))}
    strategy |= {"type": dice.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))}
    if strategy["type"].startswith("Requested") or dice.random() < 0.1:
        strategy["requestedToCapacityRatio"] = {"shape": _shape(dice)}
    return strategy


def _affinity(dice: random.Random) -> Object:
    def expression() -> Object:
        operator = _mostly(dice, ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"), ("in", ""))
        values: list[str] = {"Gt": ["5"], "Lt": ["5"], "In": ["a"], "NotIn": ["a", "b"]}.get(operator, [])
        if dice.random() < 0.1:
            values = dice.choice(([], ["x y"], ["a", "b"], [""], ["a" * 64], ["1_000"]))
        return {"key": _mostly(dice, KEYS, ODD_KEYS), "operator": operator, "values": values}

    def term() -> Object:
        fields = [
            {
                "key": _mostly(dice, ("metadata.name",), ("spec.x", "")),
                "operator": _mostly(dice, ("In", "NotIn"), ("Gt",)),
                "values": _mostly(dice, (["n"],), ([], ["a", "b"], ["A_"])),
            }
        ]
        return _some(dice, {"matchExpressions": lambda: [expression()], "matchFields": lambda: fields})

    return _some(
        dice,
        {
            "requiredDuringSchedulingIgnoredDuringExecution": lambda: {
                "nodeSelectorTerms": [term() for _ in range(dice.choice((0, 1, 2)))]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": lambda: [
                {"weight": dice.choice((1, 100, 0, 101)), "preference": term()}
            ],
        },
    )


def _spread(dice: random.Random) -> Object:
    constraint: Object = {
        "maxSkew": _mostly(dice, (1, 5), (0, -1)),
        "topologyKey": _mostly(dice, KEYS, ODD_KEYS),
        "whenUnsatisfiable": _mostly(dice, ("DoNotSchedule", "ScheduleAnyway"), ("Never", "")),
    }
    more: dict[str, Callable[[], Any]] = {
        "minDomains": lambda: dice.choice((1, 0)),
        "nodeTaintsPolicy": lambda: dice.choice(("Honor", "Other")),
        "labelSelector": lambda: {"matchLabels": {"a": "b"}},
        "matchLabelKeys": lambda: ["app"],
    }
    constraint |= {name: draw() for name, draw in more.items() if dice.random() < 0.1}
    args: Object = {"defaultConstraints": [constraint] * dice.choice((0, 1, 1, 1, 2))}
    return args | _some(dice, {"defaultingType": lambda: _mostly(dice, ("List",), ("System", "Other", ""))})


ARGUMENTS: dict[str, Callable[[random.Random], Object]] = {
    "DefaultPreemption": lambda dice: _some(
        dice,
        {
            "minCandidateNodesPercentage": lambda: _mostly(dice, (0, 10, 100), (101, -1)),
            "minCandidateNodesAbsolute": lambda: _mostly(dice, (1, 100), (0, -1)),
        },
    ),
    "InterPodAffinity": lambda dice: _some(
        dice,
        {
            "hardPodAffinityWeight": lambda: _mostly(dice, (0, 100), (101, -1)),
            "ignorePreferredTermsOfExistingPods": lambda: True,
        },
    ),
    "NodeAffinity": lambda dice: _some(dice, {"addedAffinity": lambda: _affinity(dice)}),
    "NodeResourcesFit": lambda dice: _some(
        dice,
        {
            "ignoredResources": lambda: [_mostly(dice, KEYS, ODD_KEYS)],
            "ignoredResourceGroups": lambda: [_mostly(dice, KEYS, ODD_KEYS)],
            "scoringStrategy": lambda: _strategy(dice),
        },
    ),
    "NodeResourcesBalancedAllocation": lambda dice: {"resources": _resources(dice, (0, 1))},
    "PodTopologySpread": _spread,
    "VolumeBinding": lambda dice: _some(
        dice, {"bindTimeoutSeconds": lambda: _mostly(dice, (0, 600), (-1,)), "shape": lambda: _shape(dice)}
    ),
    "DynamicResources": lambda dice: _some(
        dice,
        {
            "filterTimeout": lambda: _mostly(dice, DURATIONS, ODD_DURATIONS),
            "bindingTimeout": lambda: _mostly(dice, DURATIONS, ODD_DURATIONS),
        },
    ),
}


def _extender(dice: random.Random) -> Object:
    fields: dict[str, Callable[[], Any]] = {
        "filterVerb": lambda: "filter",
        "preemptVerb": lambda: "preempt",
        "prioritizeVerb": lambda: "prioritize",
        "weight": lambda: _mostly(dice, (1, 5), (0, -1)),
        "bindVerb": lambda: "bind",
        "enableHTTPS": lambda: dice.choice((True, False)),
        "tlsConfig": lambda: _some(
            dice,
            {
                "insecure": lambda: _mostly(dice, (False,), (True,)),
                "serverName": lambda: "extender",
                "caData": lambda: _mostly(dice, ("",), ("eA==", "x", "e A==", CA)),
                "certFile": lambda: _mostly(dice, ("",), ("/nonexistent/tls.crt",)),
                "keyData": lambda: _mostly(dice, ("",), ("eA==",)),
                "caFile": lambda: _mostly(dice, ("",), ("/nonexistent/ca.crt",)),
            },
        ),
        "httpTimeout": lambda: _mostly(dice, DURATIONS, ODD_DURATIONS),
        "nodeCacheCapable": lambda: True,
        "managedResources": lambda: [
            _some(dice, {"ignoredByScheduler": lambda: True})
            | {"name": _mostly(dice, ("example.com/gpu", "example.com/npu", "a.b/c"), ODD_KEYS)}
            for _ in range(dice.choice((1, 1, 2)))
        ],
        "ignorable": lambda: True,
    }
    prefix = dice.choice(("http://127.0.0.1:8888/scheduler", "https://x:1", "/scheduler", "", "://", "http://[::1"))
    return {"urlPrefix": prefix, **_some(dice, fields)}


# ---- mistakes


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields (container, key) for everything in the value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


def _mutate(dice: random.Random, document: Object) -> None:
    container, key = dice.choice(list(_places(document)))
    match dice.choice(("value", "value", "value", "remove", "rename", "add", "repeat", "swap", "null")):
        case "value":
            container[key] = deepcopy(dice.choice(VALUES))
        case "null":
            container[key] = None
        case "remove":
            del container[key]
        case "rename" if isinstance(container, dict):
            other = dice.choice((key.lower(), key.upper(), f"{key}s", key[:1].upper() + key[1:], "noSuchField"))
            container[other] = container.pop(key)
        case "add" if isinstance(container, dict):
            container[
                dice.choice(
                    (
                        "noSuchField",
                        "watch",
                        "featureGates",
                        "healthzBindAddress",
                        "apiVersion",
                        "kind",
                        "algorithmSource",
                    )
                )
            ] = deepcopy(dice.choice(VALUES))
        case "repeat" if isinstance(container, list):
            container.append(deepcopy(container[key]))
        case "swap" if isinstance(container, dict):
            other = dice.choice(list(container))
            container[key], container[other] = container[other], container[key]
        case _:
            document["apiVersion"] = dice.choice(
                ("kubescheduler.config.k8s.io/v1beta3", "v1", "kubescheduler.config.k8s.io/v1", "", "a/b/c")
            )


def _in_text(dice: random.Random, text: str) -> str:
    match dice.random():
        case number if number < 0.02:
            return f"{text}---\n{text}"
        case number if number < 0.03:
            return f"---\n---\n{text}"
        case number if number < 0.04:
            return f"# comment\n---\n{text}...\n"
        case number if number < 0.06:
            lines = text.splitlines()
            return "\n".join((*lines, dice.choice(lines))) + "\n"
        case number if number < 0.07:
            return text[: len(text) // 2]
        case number if number < 0.08:
            return text.replace("true", dice.choice(("yes", "on", "True", "y", "'true'")))
        case _:
            return text


RECORDED = Path(__file__).with_name("scheduler_verdicts.json")


def _record(scheduler: Path, count: int = 100) -> None:
    with TemporaryDirectory() as folder:
        entries = []
        for seed in range(count):
            file = Path(folder, "scheduler.yaml")
            file.write_text(scheduler_file(seed))
            entries.append({"text": file.read_text(), "refusal": verdict(scheduler, file)})
    RECORDED.write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    _record(build()["kube-scheduler"])
