"""What clients may take up, and how a request that takes more is refused."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may take up: bytes, fields and seconds (of head and body: from their first byte)."""

    body_bytes: int = 64 * 1024 * 1024
    head_bytes: int = 32 * 1024
    fields: int = 100
    idle_seconds: float = 120.0
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    send_seconds: float = 60.0


class Refusal(Exception):
    """The request gets this status and the connection ends, because what follows on it cannot be trusted."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Budget:
    """How many bytes of unfinished bodies all connections together may hold; one for the whole worker."""

    def __init__(self, limit_bytes: int) -> None:
        self._left = limit_bytes
        self._lock = Lock()

    def take(self, size: int) -> None:
        """Raises Refusal (503) when `size` more bytes would be too many."""
        with self._lock:
            if size > self._left:
                raise Refusal(503, "too many large requests at once: try again")
            self._left -= size

    def give_back(self, size: int) -> None:
        """Returns what `take` took."""
        with self._lock:
            self._left += size
