"""Logs requests that no handler answers, such as a wrong urlPrefix makes: kube-scheduler drops the reason."""

from __future__ import annotations

import logging

from extender.web.answers import Answer, Headers, error_answer
from extender.web.telemetry.log import LONGEST_TEXT, cut

MOST_A_SECOND = 10
_LONGEST_REQUEST = 256
_log = logging.getLogger(__name__)


def refuse(status: int, client: str, request: str, reason: str, headers: Headers = ()) -> Answer:
    """Returns the answer to what `client` asked for, and logs it; so many a second that nobody fills the disk."""
    asked = cut(request, _LONGEST_REQUEST) or "no request"
    _log.warning("%d to %s: %s: %s", status, client or "a client without address", asked, cut(reason, LONGEST_TEXT))
    return error_answer(status, reason, headers)


class _Pace(logging.Filter):
    """Lets `MOST_A_SECOND` lines pass, and says in the next how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._second = self._passed = self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if int(record.created) != self._second:
            self._second, self._passed = int(record.created), 0
        if self._passed == MOST_A_SECOND:
            self._left_out += 1
            return False
        self._passed += 1
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            record.msg, record.args = f"{record.getMessage()} (and {left_out} others before it)", None
        return True


_log.addFilter(_Pace())
