"""Builds TLS contexts, and rebuilds them when their files change: a renewed certificate needs no restart."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0  # corrected permissions do not change a file's signature, so failed files are read again
_Signature = tuple[tuple[int, int, int] | None, ...]


class ReloadingContext:
    """Holds a TLS context, and rebuilds it when one of its files changes.

    While the files do not match (a certificate was written before its key), the last good context stays in use.
    """

    def __init__(self, files: Sequence[str], build: Callable[[], ssl.SSLContext]) -> None:
        self._files = [Path(file) for file in files]
        self._build = build
        self._lock = Lock()
        self._retry_at = 0.0
        self._failed_signature: _Signature = ()
        # The signature is read before the files, so that a change in between is noticed by the next check.
        self._signature = self._current_signature()
        self._context = build()

    def current(self) -> ssl.SSLContext:
        with self._lock:
            signature = self._current_signature()
            must_wait = signature == self._failed_signature and time.monotonic() < self._retry_at
            if signature != self._signature and not must_wait:
                self._reload(signature)
            return self._context

    def _reload(self, signature: _Signature) -> None:
        try:
            self._context = self._build()
        except (OSError, ValueError) as error:
            _log.warning("TLS files not loaded, the earlier ones stay in use reason=%r", str(error))
            self._failed_signature = signature
            self._retry_at = time.monotonic() + _RETRY_SECONDS
        else:
            _log.info("TLS files loaded, new connections use them")
            self._signature = signature

    def _current_signature(self) -> _Signature:
        return tuple(_signature(file) for file in self._files)


def _signature(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def server_context(certificate: str, key: str, client_ca: str | None) -> ssl.SSLContext:
    """Returns a server's context for TLS 1.2 or newer.

    With `client_ca` a client's certificate is requested and verified. A client without a certificate can still connect,
    because the kubelet has none for its probes. `AccessRules` then refuses all requests that are not probes.

    Raises:
        OSError: a file cannot be read, or is not a certificate or key (ssl.SSLError).
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_OPTIONAL if client_ca else ssl.CERT_NONE
    return context
