"""Keeps a loop over many objects going when the work about one of them raises an unexpected error.

The error is reported, with its traceback the first time, and the loop goes on with the next object. So one object that
meets a bug neither ends the process nor delays the others, and the bug stays visible in the log and in
extender_set_aside_total. Only MemoryError is raised to the caller: no object is to blame for it, and a restart helps.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

SetAside = Callable[[str, str, Exception], object]
"""Called with a task, the object that it works on ("" if none is known), and the unexpected error that it raised."""


class going_on(AbstractContextManager[None]):  # noqa: N801  it is used like a function
    """Reports the error of a block about one object, instead of raising it. Raises MemoryError.

    After an error `undo` is called; an error that it raises is reported too. It is a class because each pod passes
    three such blocks, and a context manager of contextlib costs more than some of them.
    """

    __slots__ = ("_item", "_set_aside", "_task", "_undo")

    def __init__(
        self, set_aside: SetAside, task: str, item: str = "", undo: Callable[[], object] | None = None
    ) -> None:
        self._set_aside = set_aside
        self._task = task
        self._item = item
        self._undo = undo

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool | None:
        if not isinstance(error, Exception) or isinstance(error, MemoryError):
            return False
        self._set_aside(self._task, self._item, error)  # the other objects must not wait for this one
        if self._undo is not None:
            with going_on(self._set_aside, self._task, self._item):
                self._undo()
        return True
