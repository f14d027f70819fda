"""What has changed among the other objects."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.model.workloads import Namespace
from extender.table import objects as module
from extender.table.objects import Objects
from tests.builders import make_namespace

STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30)


def apply(objects: Objects, steps: list[tuple[str, bool]]) -> None:
    for name, gone in steps:
        if gone:
            objects.remove("Namespace", name)
        else:
            objects.set("Namespace", msgspec.convert(make_namespace(name), Namespace))


@settings(deadline=None)
@given(STEPS, STEPS)
def test_a_reader_hears_of_all_that_has_changed_since(
    before: list[tuple[str, bool]], after: list[tuple[str, bool]]
) -> None:
    objects = Objects()
    apply(objects, before)
    then, seen = dict(objects.all(Namespace)), objects.version(Namespace)
    apply(objects, after)
    changed = objects.changed_since(Namespace, seen)
    assert changed is not None
    now = objects.all(Namespace)
    assert {key for key in then.keys() | now.keys() if then.get(key) is not now.get(key)} <= set(changed)
    assert set(changed) <= {name for name, _ in after}


def test_a_reader_that_comes_too_late_is_told_so() -> None:
    objects = Objects()
    apply(objects, [("a", False)] * (2 * module._REMEMBERED + 1))
    assert objects.changed_since(Namespace, objects.version(Namespace)) == []
    assert objects.changed_since(Namespace, objects.version(Namespace) - 1) == ["a"]
    assert objects.changed_since(Namespace, 0) is None
