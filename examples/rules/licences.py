"""Runs at most as many pods with a licence as there are licences. A pod requests one like an extended resource.

The number is in a file that a program outside the cluster writes, such as a job that asks the licence server. The rule
watches the file. When the number changes, it wakes the pods that it refused, because no event of the cluster would.
"""

import threading
import time
from pathlib import Path

import numpy as np

from extender import PodInfo, Rows, Table, predicate

_known: dict[str, int] = {}


@predicate(sees_pods=True, woken_by={"AssignedPod": "Delete"})
def licence_left(
    pod: PodInfo, table: Table, rows: Rows, *, resource: str, file: str, look_every_seconds: float = 5.0
) -> object:
    """Refuses every node while all licences are taken."""
    wanted = pod.requests.get(resource, 0)
    if not wanted:
        return np.ones(len(rows), np.bool_)
    index = table.nodes.resources.get(resource)
    taken = 0 if index is None else int(table.nodes.requested[index].sum())
    fits = taken + wanted <= licences(file, look_every_seconds)
    return {"node(s) would run more licences than there are": np.full(len(rows), fits)}


def licences(file: str, look_every_seconds: float) -> int:
    """Returns the number in the file. A thread reads it from the first call on, so that no pod waits for a disk."""
    if not licence_left.in_force:  # offline commands such as `extender explain` call once
        return read(file)
    if file not in _known:
        _known[file] = read(file)
        threading.Thread(target=follow, args=(file, look_every_seconds), daemon=True).start()
    return _known[file]


def follow(file: str, look_every_seconds: float) -> None:
    """Wakes the refused pods when the number changes; ends when the rule is no longer in force."""
    while licence_left.in_force:
        time.sleep(look_every_seconds)
        try:
            number = read(file)
        except (OSError, ValueError):  # keep the last number until the file can be read
            continue
        if number != _known[file]:
            _known[file] = number
            licence_left.wake()


def read(file: str) -> int:
    return int(Path(file).read_text())
