"""Elections with short terms, for processes whose leader changes in a test."""

from __future__ import annotations

import http.client
from contextlib import suppress

from tests.faults.lives import Lives
from tests.stock.api_client import ApiClient, ApiError


def election(lease: str) -> tuple[str, ...]:
    """Returns the flags of a process that takes part in the election with this Lease."""
    return "--leader-elect", "--lease-namespace=default", f"--lease-name={lease}"


LEASE = "extender"
ELECTION = election(LEASE)


def short_terms(settle_seconds: float) -> dict[str, str]:
    """Returns the environment of a process whose term ends 2 s after its last renewal.

    Args:
        settle_seconds: how long a write may be in flight.
    """
    return {
        "EXTENDER_SETTLE_SECONDS": f"{settle_seconds}",
        "EXTENDER_ASSUMED_TTL_SECONDS": f"{settle_seconds}",
        "EXTENDER_LEASE_DURATION_SECONDS": "3",
    }


def holder(client: ApiClient, lease: str = LEASE) -> str:
    """Returns who holds the Lease; "" if no process does, or if there is no such Lease."""
    with suppress(ApiError):
        return str(client.get("Lease", lease)["spec"].get("holderIdentity", ""))
    return ""


def leads(process: Lives, lease: str = LEASE) -> bool:
    """Returns True if the process says that it leads."""
    with suppress(OSError, http.client.HTTPException):
        return process.running.metric(f'extender_leader{{name="{lease}"}}') == 1.0
    return False
