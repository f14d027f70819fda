"""Logs refused requests, for example after a wrong urlPrefix, because kube-scheduler does not log the reason."""

from __future__ import annotations

import logging

from extender.web.answers import Answer, Headers, error_answer
from extender.web.telemetry.log import LONGEST_TEXT, cut

MOST_A_SECOND = 10
_LONGEST_REQUEST = 256
_log = logging.getLogger(__name__)


def refuse(status: int, client: str, request: str, reason: str, headers: Headers = ()) -> Answer:
    """Returns the error answer to a refused request, and logs it, at most `MOST_A_SECOND` times a second."""
    line = cut(request, _LONGEST_REQUEST)
    _log.warning(
        "request refused status=%d client=%s request=%r reason=%r", status, client, line, cut(reason, LONGEST_TEXT)
    )
    return error_answer(status, reason, headers)


class _Pace(logging.Filter):
    """Drops log lines beyond `MOST_A_SECOND` a second; the next line that is logged says how many were dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._passed = 0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if int(record.created) != self._second:
            self._second = int(record.created)
            self._passed = 0
        if self._passed == MOST_A_SECOND:
            self._left_out += 1
            return False
        self._passed += 1
        if self._left_out:
            record.msg = f"{record.getMessage()} not_logged_before={self._left_out}"
            record.args = None
            self._left_out = 0
        return True


_log.addFilter(_Pace())
