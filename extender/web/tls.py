"""TLS contexts that follow their files: renewed certificates serve the next connection, without a restart."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

_log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0  # a file that cannot be read may be readable later, though it does not change
_Signature = tuple[tuple[int, int, int] | None, ...]


class ReloadingContext:
    """The context that `build` makes of `files`, made anew when one of them changes.

    While the files do not fit together (a certificate is there before its key), the last good context stays in use.
    """

    def __init__(self, files: Sequence[str], build: Callable[[], ssl.SSLContext]) -> None:
        self._files = [Path(file) for file in files]
        self._build = build
        self._lock = Lock()
        self._again_at = 0.0
        self._tried: _Signature = ()
        # The signature is taken first: a change during the build shows as a new one later.
        self._signature = self._signed()
        self._context = build()

    def current(self) -> ssl.SSLContext:
        with self._lock:
            signature = self._signed()
            tried = signature == self._tried and time.monotonic() < self._again_at
            if signature != self._signature and not tried:
                self._reload(signature)
            return self._context

    def _reload(self, signature: _Signature) -> None:
        try:
            self._context = self._build()
        except (OSError, ValueError) as error:
            _log.warning("TLS files changed but cannot be used, the old ones stay, and they are tried again: %s", error)
            self._tried, self._again_at = signature, time.monotonic() + _AGAIN_SECONDS
        else:
            _log.info("TLS files changed: new connections use them")
            self._signature = signature

    def _signed(self) -> _Signature:
        return tuple(_signature(file) for file in self._files)


def _signature(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def server_context(certificate: str, key: str, client_ca: str | None) -> ssl.SSLContext:
    """Returns a context for TLS 1.2 or newer.

    With `client_ca` a client's certificate is asked for and checked, but may be missing: kubelet's probes have none,
    and `pages.refusal` keeps everything else from those who show none.

    Raises:
        OSError: a file cannot be read, or is no certificate or key (ssl.SSLError).
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_OPTIONAL if client_ca else ssl.CERT_NONE
    return context
