from __future__ import annotations

import pytest

from extender.runtime.near_names import did_you_mean, nearest

NAMES = ("Pod", "Node", "PersistentVolumeClaim", "CSINode")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("Nodes", "Node"),
        ("node", "Node"),
        ("csinodes", "CSINode"),
        ("persistentvolumeclaims", "PersistentVolumeClaim"),
        ("Deployment", ""),
        ("", ""),
    ],
)
def test_nearest(wrong: str, meant: str) -> None:
    assert nearest(wrong, NAMES) == meant
    assert did_you_mean(wrong, NAMES) == (f" (did you mean {meant}?)" if meant else "")


def test_it_may_have_to_be_more_alike() -> None:
    assert nearest("EXTENDER_BIDE", ["EXTENDER_BIND"], alike=0.95) == ""
    assert nearest("EXTENDER_BIDE", ["EXTENDER_BIND"], alike=0.9) == "EXTENDER_BIND"


def test_there_may_be_none() -> None:
    assert nearest("Pod", ()) == ""
