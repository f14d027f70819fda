"""Calls another extender as kube-scheduler does: one POST per call, with one time limit.

Only status 200 is a success. A call is never repeated, because the first attempt may have had an effect. Source:
upstream HTTPExtender.send and makeTransport.
"""

from __future__ import annotations

import ssl
import time

from extender.cluster.pool import (
    BrokenExchange,
    ConnectionPool,
    Endpoint,
    Request,
    Response,
    address_of,
    client_context,
    content,
)
from extender.errors import ConfigurationError, OutcomeUnknown, Refused
from extender.model.extender_config import ExtenderConfig, TLSConfig
from extender.runtime.ports import Check, always

LARGEST_ANSWER_BYTES = 256 * 1024 * 1024
_MOST_IDLE = 16
_HEADERS = (("User-Agent", "extender"), ("Content-Type", "application/json"), ("Accept", "application/json"))
_OK = 200


class HttpExtender:
    """A client of one other extender. Many calls may run at once, over connections that stay open."""

    def __init__(self, config: ExtenderConfig) -> None:
        """Raises ConfigurationError if the certificates cannot be read."""
        self._prefix = config.url_prefix.rstrip("/")
        self._path = config.url.path.rstrip("/")
        self._timeout_seconds = config.timeout_seconds
        self._endpoint = endpoint_of(config)
        self._pool = ConnectionPool(config.timeout_seconds, _MOST_IDLE)
        self.close = self._pool.close

    def post(self, verb: str, body: bytes, check: Check = always) -> bytes:
        """Sends a call, and returns the body of the response. `check` is called just before anything is sent.

        Raises:
            Refused: the extender cannot be reached, answered with a status 4xx other than 408, or `check` raised it.
            OutcomeUnknown: no response arrived in time, or its status is any other than 200. The call may have had an
                effect.
        """
        url = f"{self._prefix}/{verb}"
        path, seconds = f"{self._path}/{verb}", self._timeout_seconds
        deadline = time.monotonic() + seconds
        request = Request("POST", path, _HEADERS, seconds, body, deadline, repeatable=False, check=check)
        try:
            with self._pool.exchange(self._endpoint, request) as response:
                data = _read(response)
        except BrokenExchange as error:
            raise OutcomeUnknown(f"{url}: {error}") from None
        except Refused as error:
            raise Refused(f"{url}: {error}", error.status) from None
        if response.status != _OK:
            message = f"{url} answered with status {response.status}"
            refused = 400 <= response.status < 500 and response.status != 408
            raise Refused(message, response.status) if refused else OutcomeUnknown(message)
        return data


def endpoint_of(config: ExtenderConfig) -> Endpoint:
    """Returns the extender's endpoint. Raises ConfigurationError if its URL or its certificates are unusable."""
    url = config.url
    address = address_of(url)
    try:
        tls = _context(config.tls) if url.scheme == "https" else None
    except (OSError, ValueError) as error:  # ssl.SSLError is a subclass of OSError
        raise ConfigurationError([f"extender {config.url_prefix}: certificates: {error}"]) from None
    return Endpoint(url.netloc, address, config.tls.server_name or address[0], tls)


def _read(response: Response) -> bytes:
    data = bytearray()
    for piece in response.pieces():
        data += piece
        if len(data) > LARGEST_ANSWER_BYTES:
            raise BrokenExchange(f"the response is larger than {LARGEST_ANSWER_BYTES} bytes")
    return bytes(data)


def _context(tls: TLSConfig) -> ssl.SSLContext:
    certificate, key = tls.cert_data or content(tls.cert_file), tls.key_data or content(tls.key_file)
    # As in kube-scheduler, a certificate without its key is not used.
    pem = certificate + b"\n" + key if certificate and key else b""
    return client_context(tls.ca_data.decode("ascii") or None, pem, verified=tls.verified, cafile=tls.ca_file)
