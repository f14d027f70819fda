"""@device_priority: DeviceScoring calls a user's policy as it calls ours, and outlives its failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from extender import DeviceAsk, DeviceNodes, device_priority, predicate
from extender.app.policies import PolicyTrial
from extender.cache.cache import Cache
from extender.devices.policies import NEVER
from extender.errors import ConfigurationError
from extender.framework.find_fit import score
from extender.framework.profile import Profile, Profiles
from extender.model.kinds import KINDS
from extender.offline.rule_trial import try_rule
from extender.offline.state import ClusterState
from extender.plugins.device_scoring import scored_by_first_fit
from extender.plugins.registry import default_profile
from extender.plugins.users.function import custom_rules
from extender.policy.library import Library
from extender.policy.loading import load
from extender.policy.policy import Policy
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.snapshots.objects import to_objects
from tests.builders import Object, make_pod
from tests.framework.cluster import pod_info, table_of
from tests.plugins.test_device_scoring import FIELDS, TWO_NODES, chosen_for, memory_claim
from tests.plugins.users.failures import Remembered

HERE = "tests.plugins.users.test_device_priority"
POD = make_pod("p").req(cpu="1").resource_claim("c").obj()
CLAIM = memory_claim("c", "20Gi")


@device_priority
def fullest(nodes: DeviceNodes, _ask: DeviceAsk) -> Any:
    """Prefers devices in use; TWO_NODES has one, which is gpu-1 of node b."""
    return 100 - nodes.free / 10


@device_priority(normalise=True)
def emptiest_node(nodes: DeviceNodes, _ask: DeviceAsk, *, sign: int = 1) -> Any:
    return sign * 1000 * nodes.free.sum(axis=1)


@device_priority
def broken(_nodes: DeviceNodes, _ask: DeviceAsk) -> Any:
    raise ZeroDivisionError("of no use")


@predicate
def everywhere(_pod: object, _node: object) -> bool:
    return True


def profile_with(
    args: str, *config: str, points: str = "score: {enabled: [{name: DeviceScoring}]}", **library: Any
) -> Profile:
    """Returns the profile in which only DeviceScoring scores."""
    entries = ", ".join([f"{{name: DeviceScoring, args: {args}}}", *config])
    disabled = points.replace("{enabled", '{disabled: [{name: "*"}], enabled')
    text = f"{FIELDS}profiles:\n- plugins: {{{disabled}}}\n  pluginConfig: [{entries}]\n"
    return load(text, Library(**library)).profiles[0]


def only(policy: str) -> str:
    return f'{{policies: [{{name: "{HERE}:{policy}"}}]}}'


@pytest.mark.parametrize(
    ("args", "config", "expected"),
    [
        (only("fullest"), "", ("b", [["gpu-1"]])),
        (only("emptiest_node"), "", ("a", [["gpu-0"]])),
        (only("emptiest_node"), f'{{name: "{HERE}:emptiest_node", args: {{sign: -1}}}}', ("b", [["gpu-1"]])),
        (f'{{policies: [{{name: FirstFit}}, {{name: "{HERE}:fullest", weight: 3}}]}}', "", ("b", [["gpu-1"]])),
    ],
    ids=["of devices", "of nodes, stretched", "with an argument", "in a sum"],
)
def test_it_chooses_the_node_and_the_device(args: str, config: str, expected: tuple[str, Sequence[object]]) -> None:
    table = table_of(*TWO_NODES, CLAIM)
    assert chosen_for(POD, table, profile_with(args, *filter(None, [config]))) == expected


def test_it_may_be_given_by_name() -> None:
    profile = profile_with("{policies: [{name: packed}]}", rules={"packed": fullest})
    assert chosen_for(POD, table_of(*TWO_NODES, CLAIM), profile) == ("b", [["gpu-1"]])


def scores(profile: Profile, *objects: Object) -> list[int]:
    table = table_of(*TWO_NODES, *objects)
    return [int(each) for each in score(profile, pod_info(POD), table, table.nodes.rows).total]


def test_the_webhook_asks_it_about_the_devices_that_kube_scheduler_takes() -> None:
    """On node b that is gpu-0, which is idle; gpu-1 has 750 thousandths left."""
    profile = profile_with(only("fullest"))
    assert scores(profile, CLAIM) == [0, 25]
    assert scores(scored_by_first_fit(profile), CLAIM) == [0, 0]


def test_it_counts_as_a_rule_of_the_profile() -> None:
    assert [rule.name for rule in custom_rules([profile_with(only("fullest"))])] == [f"{HERE}:fullest"]


def test_a_policy_that_fails_ends_an_offline_answer() -> None:
    with pytest.raises(ZeroDivisionError, match="of no use"):
        scores(profile_with(only("broken")), CLAIM)


def test_a_running_process_reports_a_policy_that_fails_and_decides_without_it() -> None:
    host = Remembered()
    args = f'{{policies: [{{name: BestFit}}, {{name: "{HERE}:broken"}}]}}'
    assert chosen_for(POD, table_of(*TWO_NODES, CLAIM), profile_with(args, host=host)) == ("b", [["gpu-1"]])
    assert {*host.recorded} == {(f"{HERE}:broken", "ZeroDivisionError")}


def test_a_policy_that_fails_is_reported_once_a_pod() -> None:
    """The policy is asked about each share of the claim, on all nodes and on the chosen one."""
    host = Remembered()
    profile = profile_with(only("broken"), host=host)
    table = table_of(*TWO_NODES, memory_claim("c", "5Gi", "5Gi"))
    for pods in range(1, 4):
        chosen_for(POD, table, profile)
        assert host.recorded == [(f"{HERE}:broken", "ZeroDivisionError")] * pods


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda nodes: np.zeros(3), "a number for each of 2 nodes, or for each of their 2 devices, not float64 of the"),
        (lambda nodes: "best", "not <U4 of the shape"),
        (lambda nodes: nodes.free * np.nan, "must return numbers between -1e"),
        (lambda nodes: np.full(2, NEVER), "must return numbers between -1e"),
        (lambda nodes: np.subtract(nodes.free, 1, out=nodes.free), "output array is read-only"),
    ],
    ids=["too few", "a text", "no number", "too large", "writing to the columns"],
)
def test_a_wrong_answer_is_named(answer: Any, error: str) -> None:
    profile = profile_with(
        "{policies: [{name: wrong}]}", rules={"wrong": device_priority(lambda nodes, ask: answer(nodes))}
    )
    with pytest.raises((TypeError, ValueError), match=error):
        scores(profile, CLAIM)


def test_a_changed_function_counts_at_once() -> None:
    table = table_of(*TWO_NODES, CLAIM)
    before = device_priority(normalise=True)(lambda nodes, ask: nodes.free.sum(axis=1))
    after = device_priority(normalise=True)(lambda nodes, ask: -nodes.free.sum(axis=1))
    for rule, node in ((before, "a"), (after, "b")):
        profile = profile_with("{policies: [{name: own}]}", rules={"own": rule})
        assert chosen_for(POD, table, profile)[0] == node


@pytest.mark.parametrize(
    ("args", "config", "points", "fault"),
    [
        (
            only("nothing"),
            "",
            "",
            "pluginConfig[0].args.policies[0].name: {}:nothing cannot be imported: AttributeError:",
        ),
        (
            only("everywhere"),
            "",
            "",
            "pluginConfig[0].args.policies[0].name: {}:everywhere is not a device policy; decorate the function with"
            " @device_priority",
        ),
        (
            "{policies: [{name: emptiest}]}",
            "",
            "",
            "pluginConfig[0].args.policies[0].name: expected FirstFit, BestFit, DotProd, GpuClustering, GpuPacking,"
            " FGD, CpuBalance, PWR, full, or module:function of your own; got 'emptiest'",
        ),
        (
            only("emptiest_node"),
            f'{{name: "{HERE}:emptiest_node", args: {{sing: 1}}}}',
            "",
            "pluginConfig[1].args.sing: unknown field (did you mean sign?)",
        ),
        (
            "{}",
            "",
            f'score: {{enabled: [{{name: "{HERE}:fullest"}}]}}',
            "plugins.score.enabled[0].name: {}:fullest is a device policy; name it in the policies of DeviceScoring",
        ),
    ],
    ids=["no function", "another rule", "unknown name", "unknown argument", "as a plugin"],
)
def test_every_fault_has_its_path(args: str, config: str, points: str, fault: str) -> None:
    given = {"points": points} if points else {}
    with pytest.raises(ConfigurationError) as raised:
        profile_with(args, *filter(None, [config]), rules={"full": fullest, "any": everywhere}, **given)
    [found] = raised.value.faults
    assert found.startswith(f"profiles[0].{fault.format(HERE)}")


def test_a_policy_from_elsewhere_is_not_imported() -> None:
    with pytest.raises(ConfigurationError) as raised:
        profile_with(only("fullest"), imports=False)
    assert "a rule is imported only if --policy names the policy" in raised.value.faults[0]


@pytest.mark.parametrize("function", [lambda nodes: nodes.free, lambda nodes, ask, *, handle: nodes.free])
def test_a_function_of_another_form_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match=r"must take \(nodes, ask\)|cannot have a handle"):
        device_priority(function)


def test_a_new_policy_file_with_a_policy_that_fails_is_not_adopted() -> None:
    cache = Cache(ManualClock(), Telemetry())
    for obj in (*TWO_NODES, CLAIM, POD):
        cache.changed(obj["kind"], msgspec.convert(obj, KINDS[obj["kind"]].type))
    trial = PolicyTrial("schedule", cache, Profiles([default_profile()]), ManualClock(), 0)
    trial.check(Policy((profile_with(only("fullest")),)))
    with pytest.raises(ConfigurationError, match=r"broken fails: .*ZeroDivisionError: of no use"):
        trial.check(Policy((profile_with(only("broken")),)))


def test_rule_test_tries_it() -> None:
    state = ClusterState(to_objects([*TWO_NODES, CLAIM, POD]))
    trial = try_rule("fullest", fullest, {}, state)
    assert (trial.kind, trial.failure, trial.scores, trial.differs) == ("device_priority", "", (0, 12, 25), 1)
