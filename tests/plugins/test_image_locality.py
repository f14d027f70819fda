"""ImageLocality: nodes that have the pod's images are preferred."""

from __future__ import annotations

import pytest

from extender.plugins.image_locality import ImageLocality
from tests.builders import make_node, make_pod
from tests.framework.cluster import scores

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        pytest.param({}, {"a": 0, "b": 0}, id="nowhere"),
        # held by one node of two: half of 423 MiB less the 23 that do not count, of 1000 - 23
        pytest.param({"a": 446 * MIB}, {"a": 100 * 200 // 977, "b": 0}, id="on one node"),
        pytest.param({"a": 66 * MIB}, {"a": 100 * 10 // 977, "b": 0}, id="a small image"),
        pytest.param({"a": 5000 * MIB, "b": 5000 * MIB}, {"a": 100, "b": 100}, id="capped"),
        pytest.param({"a": 10 * MIB, "b": 10 * MIB}, {"a": 0, "b": 0}, id="too small to matter"),
    ],
)
def test_image_locality(images: dict[str, int], expected: dict[str, int]) -> None:
    nodes = []
    for name in ("a", "b"):
        node = make_node(name)
        nodes.append((node.image("reg/web:latest", size_bytes=images[name]) if name in images else node).obj())
    assert scores(ImageLocality(), make_pod("p").image("reg/web").obj(), *nodes) == expected
