"""The place in a user's file where it went wrong, in one line."""

from __future__ import annotations

import sysconfig
import traceback
from difflib import get_close_matches
from pathlib import Path

_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), str(Path(__file__).parents[2]), "<frozen")


def described(error: BaseException) -> str:
    """Returns `rules.py:12: AttributeError: ... (did you mean labels?)`, by the last line of the user's own code."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: {type(error).__name__}: {error.msg}"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_LIBRARIES)]
    place = f"{Path(own[-1].filename).name}:{own[-1].lineno}: " if own else ""
    return f"{place}{type(error).__name__}: {error}{_meant(error)}"


def _meant(error: BaseException) -> str:
    if not isinstance(error, AttributeError) or error.name is None:
        return ""
    near = get_close_matches(error.name, dir(error.obj), 1)
    return f" (did you mean {near[0]}?)" if near else ""
