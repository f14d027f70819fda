"""The table of amounts finds the classes that a hint would find, whatever resources pods invent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.framework.queueing_hints import AmountLimits, IndexKeys
from extender.queue import waiting_index
from extender.queue.entries import QueuedPod
from extender.queue.waiting_index import AmountTable, ClassIndex, EquivalenceClass
from tests.queue.queueing import info

Step = tuple[dict[str, int], bool]

RESOURCES = ["cpu", "memory", *(f"example.com/r{number}" for number in range(60))]
amounts = st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 3), max_size=40)
limits = st.builds(
    lambda most, any_of: AmountLimits(
        lambda resource: most.get(resource, 0), None if any_of is None else any_of.__contains__
    ),
    st.dictionaries(st.sampled_from(RESOURCES), st.sampled_from([1, 2, float("inf")]), min_size=50),
    st.none() | st.frozensets(st.sampled_from(RESOURCES)),
)


@given(st.lists(st.tuples(amounts, st.booleans()), max_size=12), limits)
def test_a_class_is_found_if_the_limits_admit_it(
    steps: list[tuple[dict[str, int], bool]], limits: AmountLimits
) -> None:
    table = AmountTable()
    classes: list[EquivalenceClass] = []
    for requested, comes in steps:
        if comes or not classes:
            classes.append(EquivalenceClass(IndexKeys(len(classes), (), requested), 0))
            table.add(classes[-1])
        else:
            table.remove(classes.pop(len(requested) % len(classes)))
        found = {id(each) for each in table.within(limits)}
        assert found == {id(each) for each in classes if limits.admit(each.keys.amounts or {})}


def test_a_pod_of_many_resources_takes_no_more_columns_than_there_may_be() -> None:
    table = AmountTable()
    greedy = EquivalenceClass(IndexKeys(0, (), {f"example.com/r{number}": 1 for number in range(8000)}), 0)
    modest = EquivalenceClass(IndexKeys(1, (), {"cpu": 1}), 0)
    table.add(greedy)
    table.add(modest)
    assert len(table._amounts) == waiting_index._MAX_COLUMNS
    assert list(table.within(AmountLimits(lambda resource: 1 if resource == "cpu" else 0))) == [modest]
    table.remove(greedy)
    table.add(greedy)
    assert len(table._amounts) == waiting_index._MAX_COLUMNS


class Hashed(tuple[str, ...]):
    """A value that counts how often it is hashed."""

    hashes = 0

    def __hash__(self) -> int:
        type(self).hashes += 1
        return super().__hash__()


def test_the_value_of_a_pod_with_many_names_is_hashed_a_few_times() -> None:
    index, pod, names = ClassIndex(), QueuedPod(info("p"), timestamp=0.0), [f"claim-{number}" for number in range(8000)]
    members = index.add(pod, IndexKeys(Hashed(names), names, None))
    assert list(index.named(names)) == [members]
    index.remove(members, pod.uid)
    assert Hashed.hashes < 10


def test_a_class_without_pods_is_not_kept() -> None:
    index = ClassIndex()
    pod = QueuedPod(info("p"), timestamp=0.0)
    index.remove(index.add(pod, IndexKeys("p", (), {"cpu": 1})), pod.uid)
    assert list(index.within(lambda _priority: AmountLimits())) == []
