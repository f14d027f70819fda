"""Keeps a loop over many objects going when the work about one of them raises an unexpected error.

The error is reported, with its traceback the first time, and the loop goes on with the next object. So one object that
meets a bug neither ends the process nor delays the others, and the bug stays visible in the log and in
extender_set_aside_total. Only MemoryError is raised to the caller: no object is to blame for it, and a restart helps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

SetAside = Callable[[str, str, Exception], object]
"""Called with a task, the object that it works on ("" if none is known), and the unexpected error that it raised."""


@contextmanager
def going_on(
    set_aside: SetAside, task: str, item: str = "", undo: Callable[[], object] | None = None
) -> Iterator[None]:
    """Reports the error of a block about one object, instead of raising it. Raises MemoryError.

    After an error `undo` is called; an error that it raises is reported too.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # the other objects must not wait for this one
        set_aside(task, item, error)
        if undo is not None:
            with going_on(set_aside, task, item):
                undo()
