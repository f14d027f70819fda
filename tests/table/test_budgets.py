"""The budgets that cover a pod, by namespace and selector."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.model.workloads import PodDisruptionBudget
from extender.table import Table
from tests.builders import expression, make_pdb, make_pod
from tests.framework.cluster import pod_info, table_of

KIND = PodDisruptionBudget.__name__


def covering(table: Table, **labels: str) -> set[str]:
    return set(table.budgets.covering(pod_info(make_pod("p").label(labels).obj()).group))


def selecting(**selector: Any) -> dict[str, Any]:
    return {**make_pdb("pdb", {}), "spec": {"selector": selector}}


@pytest.mark.parametrize(
    ("pdb", "covers"),
    [
        pytest.param(make_pdb("pdb", {"app": "web"}), True, id="its labels"),
        pytest.param(make_pdb("pdb", {"app": "db"}), False, id="other labels"),
        pytest.param(make_pdb("pdb", {"app": "web", "tier": "x"}), False, id="not all of its labels"),
        pytest.param(make_pdb("pdb", {"app": "web"}, namespace="other"), False, id="another namespace"),
        pytest.param(selecting(matchExpressions=[expression("app", "In", "db", "web")]), True, id="one of its values"),
        pytest.param(
            selecting(matchExpressions=[expression("tier", "DoesNotExist")]), True, id="a label that is absent"
        ),
        pytest.param(selecting(), False, id="empty"),
        pytest.param({**make_pdb("pdb", {}), "spec": {}}, False, id="none"),
    ],
)
def test_a_budget_covers_the_pods_of_its_namespace_that_its_selector_matches(pdb: dict[str, Any], covers: bool) -> None:
    assert covering(table_of(pdb), app="web") == ({"default/pdb"} if covers else set())


def test_a_pod_without_labels_is_covered_by_none() -> None:
    assert covering(table_of(selecting(matchExpressions=[expression("tier", "DoesNotExist")]))) == set()


def test_a_changed_budget_covers_other_pods() -> None:
    table = table_of(make_pdb("pdb", {"app": "web"}))
    assert covering(table, app="web") == {"default/pdb"}
    table.set_object(KIND, msgspec.convert(make_pdb("pdb", {"app": "db"}), PodDisruptionBudget))
    assert covering(table, app="web") == set()
    assert covering(table, app="db") == {"default/pdb"}
    table.remove_object(KIND, "default/pdb")
    assert covering(table, app="db") == set()
