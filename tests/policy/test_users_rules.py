"""Users' rules in both forms of a policy: found, given their arguments, refused with what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from extender.errors import ConfigurationError
from extender.plugins.users.predicate import predicate
from extender.plugins.users.priority import priority
from extender.policy.library import Library
from extender.policy.loading import read
from tests.builders import Object, make_node, make_pod
from tests.framework.cluster import refusals, scores
from tests.policy.configurations import profile

KEEP, WARM = "tests.plugins.users.examples:keep_namespace", "tests.plugins.users.examples:warm_cache"
ARGUMENTS = {"namespace": "ml", "label": "pool", "value": "ml"}
NODES = [make_node("gpu").label(pool="ml").obj(), make_node("plain").obj()]


@predicate
def never(pod: Any, node: Any) -> bool:
    return False


@priority
def flat(pod: Any, node: Any, *, score: int = 5) -> int:
    return score


def no_rule(pod: Any, node: Any) -> bool:
    return False


def configuration(plugins: Object, *config: Object) -> Object:
    return profile(plugins=plugins, pluginConfig=list(config))


def policy(**fields: Any) -> Object:
    return {"kind": "Policy", **fields}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            configuration({"filter": {"enabled": [{"name": KEEP}]}}, {"name": KEEP, "args": ARGUMENTS}), id="filter"
        ),
        pytest.param(
            configuration({"multiPoint": {"enabled": [{"name": KEEP}]}}, {"name": KEEP, "args": ARGUMENTS}),
            id="multiPoint",
        ),
        pytest.param(policy(predicates=[{"name": KEEP, "argument": ARGUMENTS}]), id="classic"),
    ],
)
def test_a_predicate_runs_with_its_arguments_after_all_others(document: Object) -> None:
    rules = read(document).profiles[0].predicates
    assert rules[-1].name == KEEP
    assert refusals(rules[-1], make_pod("p", "ml").obj(), *NODES).keys() == {"plain"}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(configuration({"score": {"enabled": [{"name": WARM, "weight": 4}]}}), id="score"),
        pytest.param(configuration({"multiPoint": {"enabled": [{"name": WARM, "weight": 4}]}}), id="multiPoint"),
        pytest.param(policy(priorities=[{"name": WARM, "weight": 4}]), id="classic"),
    ],
)
def test_a_priority_runs_with_its_weight(document: Object) -> None:
    weighted = read(document).profiles[0].priorities[-1]
    assert (weighted.priority.name, weighted.weight) == (WARM, 4)
    node = make_node("n").annotation({"example.com/models": "bert"}).obj()
    pod = make_pod("p").annotation({"example.com/models": "bert"}).obj()
    assert scores(weighted.priority, pod, node) == {"n": 100}


def test_rules_of_a_program_go_by_the_names_that_it_gives_them() -> None:
    library = Library(rules={"Never": never, "Flat": flat})
    plugins = {"filter": {"enabled": [{"name": "Never"}]}, "score": {"enabled": [{"name": "Flat"}]}}
    made = read(configuration(plugins, {"name": "Flat", "args": {"score": 9}}), library).profiles[0]
    assert refusals(made.predicates[-1], make_pod("p").obj(), *NODES)["gpu"].plugin == "Never"
    assert scores(made.priorities[-1].priority, make_pod("p").obj(), *NODES) == {"gpu": 9, "plain": 9}


def test_rules_of_an_installed_package_go_by_their_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    information = tmp_path / "rules-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: rules\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[extender.rules]\nKeepNamespace = {KEEP}\n")
    monkeypatch.syspath_prepend(tmp_path)
    document = policy(predicates=[{"name": "KeepNamespace", "argument": ARGUMENTS}])
    assert read(document).profiles[0].predicates[-1].name == "KeepNamespace"
    with pytest.raises(ConfigurationError, match=r"unknown plugin 'KeepNamespaces' \(did you mean KeepNamespace\?\)"):
        read(policy(predicates=[{"name": "KeepNamespaces"}]))


HERE = "tests.policy.test_users_rules"


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        pytest.param(
            policy(predicates=[{"name": "nowhere:rule"}]),
            "predicates[0].name: nowhere:rule cannot be imported: ModuleNotFoundError: No module named 'nowhere'",
            id="no module",
        ),
        pytest.param(
            policy(predicates=[{"name": f"{HERE}:nevr"}]),
            f"predicates[0].name: {HERE}:nevr cannot be imported: "
            f"AttributeError: module '{HERE}' has no attribute 'nevr' (did you mean never?)",
            id="no function",
        ),
        pytest.param(
            policy(predicates=[{"name": f"{HERE}:no_rule"}]),
            f"predicates[0].name: {HERE}:no_rule is not a rule; decorate the function with @predicate, @priority, "
            "@device_priority, @pre_enqueue, @queue_sort, @post_filter, @reserve, @permit, @bind, @pre_bind or "
            "@post_bind",
            id="not decorated",
        ),
        pytest.param(
            policy(predicates=[{"name": f"{HERE}:flat"}]),
            f"predicates[0].name: {HERE}:flat is not a predicate",
            id="priority",
        ),
        pytest.param(
            policy(priorities=[{"name": f"{HERE}:never", "weight": 1}]),
            f"priorities[0].name: {HERE}:never is not a priority",
            id="predicate",
        ),
        pytest.param(
            configuration({"score": {"enabled": [{"name": f"{HERE}:never"}]}}),
            f"profiles[0].plugins.score.enabled[0].name: {HERE}:never does not implement the extension point score",
            id="predicate at score",
        ),
        pytest.param(
            policy(predicates=[{"name": KEEP, "argument": {**ARGUMENTS, "valeu": "x"}}]),
            "predicates[0].argument.valeu: unknown field (did you mean value?)",
            id="unknown argument",
        ),
        pytest.param(
            policy(priorities=[{"name": f"{HERE}:flat", "weight": 1, "argument": {"score": "high"}}]),
            "priorities[0].argument.score: expected a valid integer, got 'high'",
            id="argument of another type",
        ),
        pytest.param(
            configuration(
                {"filter": {"enabled": [{"name": KEEP}]}}, {"name": KEEP, "args": {"namespace": "a", "label": "b"}}
            ),
            "profiles[0].pluginConfig[0].args.value: required",
            id="argument missing",
        ),
    ],
)
def test_one_fault(document: Object, fault: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(document)
    assert caught.value.faults == (fault,)


def test_a_module_that_cannot_be_imported_is_one_fault_however_many_rules_it_has() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(policy(predicates=[{"name": "nowhere:a"}, {"name": "nowhere:b"}, {"name": "elsewhere:a"}]))
    assert [fault.split(" cannot")[0] for fault in caught.value.faults] == [
        "predicates[0].name: nowhere:a",
        "predicates[2].name: elsewhere:a",
    ]


def test_arguments_that_are_not_given_are_missing() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(configuration({"filter": {"enabled": [{"name": KEEP}]}}))
    path = f"profiles[0].pluginConfig: {KEEP}: args"
    assert caught.value.faults == tuple(f"{path}.{name}: required" for name in ("namespace", "label", "value"))
