"""Remembered pods are the latest ones, within limits of number and size."""

from __future__ import annotations

import msgspec
import pytest

from extender.cache.observed import MOST_BYTES, MOST_PODS, RememberedPods
from extender.model.pod import Pod
from extender.table import PodInfo
from tests.builders import make_pod


def info(number: int) -> PodInfo:
    return PodInfo(msgspec.convert(make_pod(f"p{number}").uid(str(number)).obj(), Pod))


@pytest.mark.parametrize(
    ("count", "size_bytes", "kept"),
    [
        pytest.param(10, 1000, 10, id="few and small"),
        pytest.param(MOST_PODS + 3, 10, MOST_PODS, id="too many"),
        pytest.param(20, 8 * 1024 * 1024, 8, id="larger than 64 MiB together"),
        pytest.param(3, 64 * 1024 * 1024 + 1, 0, id="larger than 64 MiB each"),
    ],
)
def test_the_oldest_pods_are_dropped_at_the_limits(count: int, size_bytes: int, kept: int) -> None:
    pods = RememberedPods()
    for number in range(count):
        pods.put(info(number), size_bytes)
    assert len(pods) == kept
    assert [pods.get(str(number)) is not None for number in range(count)] == [False] * (count - kept) + [True] * kept


def test_a_pod_that_is_sent_again_counts_once_and_as_the_latest() -> None:
    pods, size_bytes = RememberedPods(), MOST_BYTES // 2
    pods.put(info(1), size_bytes)
    pods.put(info(2), size_bytes)
    pods.put(info(1), size_bytes)
    pods.put(info(3), size_bytes)
    assert [pods.get(uid) is not None for uid in "123"] == [True, False, True]
    pods.drop("1")
    pods.drop("1")
    assert len(pods) == 1
