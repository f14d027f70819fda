"""Decodes one large request and prints how many times its size the process has grown in the process."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable

from extender.errors import MalformedRequest
from extender.extender_v1.messages import decode_args, decode_preemption_args

POD = b'"Pod":{"metadata":{"name":"p","uid":"u"}}'
SIZE_BYTES = 16 * 1024 * 1024


def repeated(before: bytes, value: bytes, after: bytes) -> bytes:
    return before + value * (SIZE_BYTES // len(value)) + value.rstrip(b",") + after


def keys(before: bytes, value: bytes, after: bytes) -> bytes:
    """As `repeated`, each value under a key of its own."""
    return before + b",".join(b'"%07d":%b' % (i, value) for i in range(SIZE_BYTES // (len(value) + 11))) + after


NODES, NODES_END = b'{%b,"Nodes":{"items":[' % POD, b"]}}"
VICTIMS, VICTIMS_END = b'{%b,"NodeNameToMetaVictims":{"n":{"Pods":[' % POD, b"]}}}"
SHAPES: dict[str, tuple[Callable[[bytes], object], Callable[[], bytes]]] = {
    "short names": (decode_args, lambda: repeated(b'{%b,"NodeNames":[' % POD, b'"a",', b"]}")),
    "names": (decode_args, lambda: repeated(b'{%b,"NodeNames":[' % POD, b'"node-12345",', b"]}")),
    "empty nodes": (decode_args, lambda: repeated(NODES, b"{},", NODES_END)),
    "numbers for nodes": (decode_args, lambda: repeated(NODES, b"1,", NODES_END)),
    "named nodes": (decode_args, lambda: repeated(NODES, b'{"metadata":{"name":"a"}},', NODES_END)),
    "unknown fields": (decode_args, lambda: keys(b'{%b,"NodeNames":[],' % POD, b"1", b"}")),
    "empty victims": (decode_preemption_args, lambda: repeated(VICTIMS, b"{},", VICTIMS_END)),
    "victims": (decode_preemption_args, lambda: repeated(VICTIMS, b'{"UID":"abcdefgh"},', VICTIMS_END)),
    "victims' nodes": (
        decode_preemption_args,
        lambda: keys(b'{%b,"NodeNameToMetaVictims":{' % POD, b'{"Pods":[]}', b"}}"),
    ),
}


def main() -> None:
    decode, make = SHAPES[sys.argv[1]]
    body = make()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        decode(body)
    except MalformedRequest as error:
        print(str(error)[:200], file=sys.stderr)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / len(body))


if __name__ == "__main__":
    main()
