"""Every exception that leaves a room stands in errors.py, in the tree at its head."""

from __future__ import annotations

import inspect
import re
from functools import cache

from extender import errors


@cache
def declared() -> dict[str, type]:
    return {
        name: found
        for name, found in inspect.getmembers(errors, inspect.isclass)
        if found.__module__ == errors.__name__
    }


def test_the_tree_shows_every_exception_under_its_base() -> None:
    above: list[tuple[int, str]] = []
    drawn: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        entry = re.match(r"^ {4}([│├└─ ]*)((?:[A-Z]\w+(?:, )?)+)", line)
        if entry is None:
            continue
        depth = len(entry.group(1))
        above = [each for each in above if each[0] < depth]
        for name in entry.group(2).split(", "):
            drawn[name] = above[-1][1] if above else "Exception"
        above.append((depth, entry.group(2).split(", ")[-1]))
    assert drawn == {name: found.__bases__[0].__name__ for name, found in declared().items()}
