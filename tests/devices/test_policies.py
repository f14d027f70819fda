"""Device policies: each against its formula, and the chooser against one that keeps nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender import Cluster
from extender.devices.device_nodes import DeviceAsk, DeviceNodes
from extender.devices.policies import (
    FGD,
    NEVER,
    POLICIES,
    PWR,
    BestFit,
    Choice,
    CpuBalance,
    DeviceChooser,
    DevicePolicy,
    GpuClustering,
    GpuPacking,
    LeastAllocated,
    UserPolicy,
    Weighted,
)
from extender.devices.typical_pods import TypicalPods, kind_of, most_frequent
from extender.snapshots.objects import to_pod
from tests.builders import make_node, make_pod

CPU = DeviceAsk(cpu=4000)
HALF = DeviceAsk(cpu=1000, milli=500, count=1)
ONE = DeviceAsk(cpu=2000, milli=1000, count=1)
TWO_T4 = DeviceAsk(cpu=2000, milli=1000, count=2, models=frozenset({"T4"}))
TYPICAL = TypicalPods.of([CPU, HALF, HALF, ONE, TWO_T4])


def nodes(*free: Sequence[int], models: Sequence[str] = (), cpu: int = 64_000) -> DeviceNodes:
    """Returns a node for each sequence of free thousandths."""
    most = max(map(len, free))
    count = len(free)
    made = DeviceNodes.empty(
        np.array(models or ["T4"] * count),
        np.full(count, cpu),
        np.full(count, 1 << 20),
        np.array([len(each) for each in free]),
    )
    made.free = np.array([[*each, *[0] * (most - len(each))] for each in free])
    return made


def placed(policy: DevicePolicy, state: DeviceNodes, ask: DeviceAsk) -> Choice | None:
    return DeviceChooser(state, [Weighted(policy)]).choose(ask)


@pytest.mark.parametrize(
    ("name", "ask", "expected"),
    [
        pytest.param("FirstFit", HALF, Choice(0, (0,)), id="the first node and device"),
        pytest.param("FirstFit", ONE, Choice(0, (0,)), id="the first idle device"),
        pytest.param("BestFit", HALF, Choice(1, (1,)), id="the node with the least left, and its fullest device"),
        pytest.param("BestFit", TWO_T4, Choice(2, (0, 1)), id="the node on which two idle devices leave nothing"),
        pytest.param("DotProd", HALF, Choice(1, (1,)), id="the node least like the pod"),
        pytest.param("GpuPacking", HALF, Choice(1, (1,)), id="a device in use, before an idle one"),
        pytest.param("GpuPacking", ONE, Choice(0, (0,)), id="an idle device of a node in use, before an idle node"),
        pytest.param("PWR", HALF, Choice(0, (1,)), id="a device that is awake"),
        pytest.param("LeastAllocated", HALF, Choice(0, (0,)), id="the first of equal nodes, and its first device"),
        pytest.param("FGD", HALF, Choice(0, (1,)), id="a device that whole pods cannot use anyway"),
    ],
)
def test_a_policy_chooses(name: str, ask: DeviceAsk, expected: Choice) -> None:
    state = nodes([1000, 600, 1000], [100, 550], [1000, 1000])
    assert placed(POLICIES[name](TYPICAL, 0), state, ask) == expected


def test_a_pod_that_fits_nowhere_has_no_choice() -> None:
    assert placed(BestFit(), nodes([400, 400]), HALF) is None
    assert placed(BestFit(), nodes([1000, 1000], models=["A10"]), TWO_T4) is None
    assert placed(BestFit(), nodes([1000], cpu=500), HALF) is None


def test_random_prefers_no_node_for_its_many_devices() -> None:
    state = nodes([1000] * 8, [1000])
    chooser = DeviceChooser(state, [Weighted(POLICIES["Random"](TYPICAL, 7))])
    choices = [chooser.choose(HALF) for _ in range(400)]
    assert 150 < sum(choice is not None and choice.row == 1 for choice in choices) < 250
    assert len({choice.devices for choice in choices if choice is not None and choice.row == 0}) == 8


def test_least_allocated_scores_like_the_schedulers_plugins() -> None:
    """Three nodes with other shares of CPU and memory in use, and a pod that needs a tenth and a seventh of them."""
    used = [(7, 10), (11, 3), (1, 17)]
    objects = [
        obj
        for number, (cpu, memory) in enumerate(used)
        for obj in (
            make_node(f"n{number}").capacity(cpu="21", memory=f"{20 * (number + 1)}Mi", pods="9").obj(),
            make_pod(f"p{number}").req(cpu=str(cpu), memory=f"{memory}Mi").node(f"n{number}").obj(),
        )
    ]
    decision = Cluster.from_objects(objects).decide(to_pod(make_pod("new").req(cpu="2", memory="3Mi").obj()))
    plugins = ("NodeResourcesFit", "NodeResourcesBalancedAllocation")
    upstream = np.sum([decision.scores[plugin].weighted for plugin in plugins], axis=0)
    state = nodes(*[[1000]] * 3, cpu=21_000)
    state.memory = np.array([20, 40, 60])
    state.free_cpu = state.cpu - np.array([cpu * 1000 for cpu, _ in used])
    state.free_memory = state.memory - np.array([memory for _, memory in used])
    ours = LeastAllocated().score(state, DeviceAsk(cpu=2000, memory=3))
    assert ours[:, 0].tolist() == upstream.tolist()


def test_gpu_clustering_prefers_nodes_with_pods_of_the_same_kind() -> None:
    state = nodes([1000, 0], [1000, 0], [1000, 0], [1000, 1000])
    state.pods[0, ONE.kind] = 1
    state.pods[1, [ONE.kind, HALF.kind]] = 1
    state.pods[2, HALF.kind] = 1
    full = [21, 21, 21, 18]  # 25 (8000 - G) / 8000, truncated with what is before it
    assert GpuClustering().score(state, ONE).tolist() == [75 + full[0], 50 + full[1], full[2], 25 + full[3]]
    assert GpuClustering().score(state, CPU).tolist() == [0, 0, 0, 0]


def test_gpu_packing_scores_by_its_three_cases() -> None:
    state = nodes([640, 1000], [400, 1000], [1000, 1000])
    assert GpuPacking().score(state, HALF).tolist() == [94, 49, 31]


def test_pwr_counts_devices_that_wake_and_sockets_that_fill() -> None:
    state = nodes([1000, 500], models=["A10"])
    state.free_cpu[0] -= 31_500
    # Either way a second socket starts (105 W more); device 0 wakes (120 W more).
    assert PWR().score(state, HALF).tolist() == [[-225, -105]]


def test_cpu_balance_spares_a_node_whose_cpu_runs_out_before_its_devices() -> None:
    """Typical pods request 1.5 millicores for each thousandth, so node 0 has just enough for both of its devices."""
    state = nodes([1000, 1000], [1000, 1000])
    state.free_cpu[:] = [3000, 9000]
    assert CpuBalance(TYPICAL).score(state, HALF).tolist() == [45, 50]
    assert CpuBalance(TYPICAL).score(state, TWO_T4).tolist() == [50, 50]
    assert CpuBalance(TypicalPods({})).score(state, HALF).tolist() == [50, 50]


def test_the_typical_pods_are_the_most_frequent() -> None:
    kinds = most_frequent({kind_of(HALF): 60, kind_of(ONE): 35, kind_of(CPU): 4, kind_of(TWO_T4): 1})
    assert kinds == {kind_of(HALF): 60 / 95, kind_of(ONE): 35 / 95}


def test_a_users_function_is_a_policy() -> None:
    most_free = UserPolicy("most_free", lambda state, _ask: state.free.sum(axis=1))
    assert placed(most_free, nodes([500, 600], [1000, 1000]), HALF) == Choice(1, (0,))


def test_a_sum_stretches_and_weighs_its_parts() -> None:
    state = nodes([1000], [500])
    first = UserPolicy("first", lambda state, _ask: np.array([1, 0])[: len(state.free)])
    assert DeviceChooser(state, [Weighted(BestFit()), Weighted(first, 99)]).choose(HALF) == Choice(1, (0,))
    assert DeviceChooser(state, [Weighted(BestFit()), Weighted(first, 101)]).choose(HALF) == Choice(0, (0,))


def fragmentation(free: Sequence[int], cpu: int, model: str, asks: Sequence[DeviceAsk]) -> float:
    """The paper's definition, one typical pod after the other; every ask counts alike."""
    total = 0.0
    for ask in asks:
        fitting = [each for each in free if each >= ask.milli]
        fits = ask.count and (not ask.models or model in ask.models) and cpu >= ask.cpu and len(fitting) >= ask.count
        total += sum(each for each in free if each < ask.milli) if fits else sum(free)
    return total / len(asks)


ASKS = st.builds(
    lambda cpu, kind, models: DeviceAsk(cpu, 1, kind[0], kind[1], frozenset(models)),
    st.sampled_from([500, 4000, 20_000]),
    st.sampled_from([(0, 0), (100, 1), (300, 1), (700, 1), (1000, 1), (1000, 2)]),
    st.sets(st.sampled_from(["T4", "A10"]), max_size=1),
)
FREE = st.lists(st.sampled_from([0, 50, 300, 450, 1000]), min_size=1, max_size=4)


@given(free=FREE, ask=ASKS, typical=st.lists(ASKS, min_size=1, max_size=6, unique_by=kind_of))
def test_fragmentation_and_fgd_are_the_papers(free: list[int], ask: DeviceAsk, typical: list[DeviceAsk]) -> None:
    learned = TypicalPods({kind_of(each): 1 / len(typical) for each in typical})
    state = nodes(free, cpu=21_000)
    before = fragmentation(free, 21_000, "T4", typical)
    assert learned.fragmentation(state).tolist() == pytest.approx([before])
    if not state.fits(ask)[0]:
        return
    scores = FGD(learned).score(state, ask)
    for device in range(len(free)) if ask.is_shared else (0,):
        chosen = (device,) if ask.is_shared else tuple(np.flatnonzero(np.array(free) == 1000)[: ask.count])
        if free[device] >= ask.milli or not ask.is_shared:
            after = [each - ask.milli * (index in chosen) for index, each in enumerate(free)]
            drop = before - fragmentation(after, 21_000 - ask.cpu, "T4", typical)
            score = scores[0, device] if ask.is_shared else scores[0]
            assert score == pytest.approx(100 / (1 + math.exp(-drop / 1000)), abs=1)
    fits = state.free >= max(ask.milli, 1)
    best = scores if scores.ndim == 1 else np.where(fits, scores, NEVER).max(axis=1)
    assert FGD(learned).best(state, ask, fits).tolist() == best.tolist()


def test_the_fragmentation_of_a_node_with_more_devices_than_others() -> None:
    """The first table is made for nodes with few devices; later ones may have more."""
    learned = TypicalPods({kind_of(ONE): 0.5, kind_of(TWO_T4): 0.5})
    assert learned.fragmentation(nodes([1000, 300])).tolist() == [300 + 0.5 * 1000]
    wide = nodes([1000] * 39 + [300], models=["A10"])
    assert learned.fragmentation(wide).tolist() == [300 + 0.5 * 39_000]
    assert learned.drop(wide, ONE).tolist() == [500]
    assert placed(FGD(learned), wide, replace(ONE, count=40)) is None
    assert FGD(learned).score(nodes([1000]), replace(ONE, count=40)).shape == (1,)


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "Random"])
@settings(max_examples=25)
@given(asks=st.lists(st.tuples(ASKS, st.booleans()), max_size=15))
def test_kept_scores_are_those_of_a_new_chooser(name: str, asks: list[tuple[DeviceAsk, bool]]) -> None:
    policy = POLICIES[name](TYPICAL, 0)
    state = nodes([1000] * 4, [1000] * 2, [1000], models=["T4", "A10", "T4"])
    chooser = DeviceChooser(state, [Weighted(policy)])
    running: list[tuple[Choice, DeviceAsk]] = []
    for ask, leaves in asks:
        choice = chooser.choose(ask)
        assert choice == placed(policy, state, ask)
        if choice is not None:
            chooser.change(choice, ask)
            running.append((choice, ask))
        if leaves and running:
            chooser.change(*running.pop(0), sign=1)
        assert state.free.min() >= 0
        assert state.free_cpu.min() >= 0
    for choice, ask in running:
        chooser.change(choice, ask, sign=1)
    assert state.free.sum() == 7000
    assert state.pods.sum() == 0
