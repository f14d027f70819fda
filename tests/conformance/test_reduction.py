"""A failing case is made smaller, and fails for the same reason."""

from __future__ import annotations

from tests.builders import Object, make_node, make_pod
from tests.conformance.reduction import reduced


def test_only_what_the_failure_needs_is_left() -> None:
    nodes = [make_node(f"n{number}").taint("a").taint("b").obj() for number in range(3)]
    case: Object = {"name": "x", "cluster": {"items": nodes}, "pod": make_pod("p").req(cpu="1").obj()}

    def fails(part: Object) -> bool:
        specs = [node.get("spec", {}) for node in part["cluster"]["items"]]
        return any({"key": "b", "effect": "NoSchedule"} in spec.get("taints", []) for spec in specs)

    small = reduced(case, fails)
    assert [node["spec"] for node in small["cluster"]["items"]] == [{"taints": [{"key": "b", "effect": "NoSchedule"}]}]
    assert "spec" not in small["pod"]
    assert len(case["cluster"]["items"]) == 3
