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


class RequestRefused(Exception):
    """The request gets this status and the connection ends, because what follows on it cannot be trusted."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Budget:
    """How many bytes of bodies all connections together may hold, and those of one client; one for a whole server."""

    def __init__(self, limit_bytes: int, client_bytes: int) -> None:
        self._left, self._client_bytes = limit_bytes, client_bytes
        self._taken: dict[str, int] = {}
        self._lock = Lock()

    def take(self, client: str, size: int) -> None:
        """Raises RequestRefused (503) where `size` more bytes would be too many."""
        with self._lock:
            taken = self._taken.get(client, 0) + size
            if size > self._left or taken > self._client_bytes:
                raise RequestRefused(503, "too many large requests at once: try again")
            self._left -= size
            self._taken[client] = taken

    def give_back(self, client: str, size: int) -> None:
        """Returns what `take` took."""
        with self._lock:
            self._left += size
            taken = self._taken.pop(client) - size
            if taken:
                self._taken[client] = taken
