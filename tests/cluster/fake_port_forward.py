"""The API server's side of a forwarded port: frames of a WebSocket become bytes of a connection to this machine."""

from __future__ import annotations

import base64
import hashlib
import socket
import struct
import threading
from contextlib import suppress
from email.message import Message

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY, _CLOSE = 2, 8


def bridge(client: socket.socket, headers: Message, port: int) -> None:
    """Accepts the WebSocket, and carries its bytes to and from the port until one side ends."""
    accepted = base64.b64encode(hashlib.sha1((headers["Sec-WebSocket-Key"] + _GUID).encode()).digest()).decode()
    client.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n" + f"Sec-WebSocket-Accept: {accepted}\r\n\r\n".encode()
    )
    for channel in (0, 1):
        _send(client, bytes((channel,)) + struct.pack("<H", port))
    try:
        target = socket.create_connection(("127.0.0.1", port))
    except OSError as error:
        _send(client, b"\x01" + str(error).encode())
        return
    threading.Thread(target=_answers, args=(target, client), daemon=True).start()
    with target, suppress(OSError, EOFError):
        while data := _receive(client):
            target.sendall(data[1:])


def _answers(target: socket.socket, client: socket.socket) -> None:
    with suppress(OSError):
        while data := target.recv(65536):
            _send(client, b"\x00" + data)
        client.sendall(bytes((0x80 | _CLOSE, 0)))


def _send(client: socket.socket, data: bytes) -> None:
    head = bytes((0x80 | _BINARY,))
    length = bytes((len(data),)) if len(data) < 126 else struct.pack("!BQ", 127, len(data))
    client.sendall(head + length + data)


def _receive(client: socket.socket) -> bytes:
    """Returns the data of the next frame; b"" at the end."""
    first, second = _exactly(client, 2)
    length = second & 127
    if length == 126:
        (length,) = struct.unpack("!H", _exactly(client, 2))
    elif length == 127:
        (length,) = struct.unpack("!Q", _exactly(client, 8))
    mask = _exactly(client, 4)
    data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(_exactly(client, length)))
    return b"" if first & 15 == _CLOSE else data


def _exactly(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (part := client.recv(count - len(data))):
            raise EOFError
        data += part
    return data
