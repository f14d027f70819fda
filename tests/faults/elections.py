"""Elections with short terms, for processes whose leader changes in a test."""

from __future__ import annotations

ELECTION = ("--leader-elect", "--lease-namespace=default", "--lease-name=extender")


def short_terms(settle_seconds: float) -> dict[str, str]:
    """Returns the environment of a process whose term ends 2 s after its last renewal.

    Args:
        settle_seconds: how long a write may be in flight.
    """
    return {
        "EXTENDER_SETTLE_SECONDS": f"{settle_seconds}",
        "EXTENDER_ASSUMED_TTL_SECONDS": f"{settle_seconds}",
        "EXTENDER_LEASE_DURATION_SECONDS": "3",
        "EXTENDER_RENEW_DEADLINE_SECONDS": "2",
        "EXTENDER_RETRY_PERIOD_SECONDS": "0.4",
    }
