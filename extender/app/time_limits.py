"""The order that time limits need. If two limits are in the wrong order, one of them can starve the other.

Each limit is defined where it is used. This module only says which must end before which, and why. A test holds every
row for the defaults, and docs/faults.md repeats the table. A process whose settings break an order logs a warning.
"""

from __future__ import annotations

import logging
from math import inf
from typing import NamedTuple

from extender.app.feed import HAND_OVER_SECONDS, LEAD_SECONDS, RELIST_SECONDS, timing_of
from extender.app.housekeeping import UNANSWERED_SECONDS
from extender.cache.expiry import SURVEY_SECONDS
from extender.cluster.http.kube_client import CALL_SECONDS, CONNECT_SECONDS
from extender.cluster.watch.api_objects import LIST_SILENCE_SECONDS
from extender.cluster.watch.reflector import DELETION_SECONDS
from extender.cluster.watch.source import WATCH_SILENCE_SECONDS
from extender.cluster.watch.survey import LONGEST_INTERVAL_SECONDS, PATIENCE_SECONDS
from extender.config.settings import Settings
from extender.model.extender_config import DEFAULT_TIMEOUT_SECONDS
from extender.verbs.verb import SECONDS as CONFIRMATION_SECONDS

_log = logging.getLogger(__name__)

BOOKMARK_SECONDS = 60.0  # kube-apiserver sends a bookmark about this often


class Order(NamedTuple):
    """Two limits in seconds, of which the first must not be longer than the second."""

    shorter: str
    shorter_seconds: float
    longer: str
    longer_seconds: float
    reason: str


def orders(settings: Settings) -> tuple[Order, ...]:
    """Returns the orders that must hold, with the limits of `settings`."""
    settle, stale = settings.settle_seconds, settings.max_staleness_seconds or inf
    unanswered = max(settings.assumed_ttl_seconds or UNANSWERED_SECONDS, settle)
    wrong = LONGEST_INTERVAL_SECONDS + LIST_SILENCE_SECONDS + PATIENCE_SECONDS
    survey = LIST_SILENCE_SECONDS + PATIENCE_SECONDS
    scheduler = DEFAULT_TIMEOUT_SECONDS
    timing = timing_of(settings)
    renewal, term, lease = timing.call_seconds, timing.renew_deadline_seconds, timing.lease_duration_seconds
    return (
        Order("a renewal", renewal, "a term without another", term, "one call that hangs does not end the term"),
        Order("a term without another", term, "leaseDurationSeconds", lease, "a leader ends before another begins"),
        Order("dialling", CONNECT_SECONDS, "a call", CALL_SECONDS, "a call that could not be sent is refused in time"),
        Order("a call", CALL_SECONDS, "settleSeconds", settle, "nothing is sent after the deadline of a write"),
        Order("settleSeconds", settle, "an unanswered bind's place", unanswered, "the place outlives the write"),
        Order("a survey's list and its patience", survey, "deletions", DELETION_SECONDS, "a survey finds deletions"),
        Order("a list's silence", LIST_SILENCE_SECONDS, "listing again", RELIST_SECONDS, "no slow list ends a term"),
        Order("the time until a wrong cache is known", wrong, "maxStalenessSeconds", stale, "surveys keep kinds fresh"),
        Order("bookmarks", BOOKMARK_SECONDS, "a silent watch", WATCH_SILENCE_SECONDS, "a quiet watch stays open"),
        Order("expiry's lists", SURVEY_SECONDS, "an unanswered bind's place", unanswered, "a place is given back soon"),
        Order("waiting for the watch", CONFIRMATION_SECONDS, "kube-scheduler's call", scheduler, "bind answers soon"),
        Order("waiting to lead", LEAD_SECONDS, "kube-scheduler's call", scheduler, "a standby answers in time"),
        Order("handing over", HAND_OVER_SECONDS, "a call", CALL_SECONDS, "an end does not wait for a call that hangs"),
    )


def warn(settings: Settings) -> None:
    """Logs each order that the settings break, because a promise of docs/faults.md does not hold then."""
    for order in orders(settings):
        if order.shorter_seconds > order.longer_seconds:
            shorter = f"{order.shorter}: {order.shorter_seconds:g} s"
            longer = f"{order.longer}: {order.longer_seconds:g} s"
            _log.warning("a time limit is too short shorter=%r longer=%r needed=%r", shorter, longer, order.reason)
