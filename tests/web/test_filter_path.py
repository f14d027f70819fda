"""docs/architecture.md names the files that a filter call passes from the socket to find_fit."""

from __future__ import annotations

import json
import re
import socket
import sys
from pathlib import Path
from types import FrameType

import extender
from extender.app.feed import feed_factory_of
from extender.app.serve import application
from extender.config.settings import Settings
from extender.framework.find_fit import find_fit
from extender.runtime.unsettled import UnsettledWrites
from extender.web.connection import Application, Budget, ClientConnection
from tests.builders import make_node, make_pod
from tests.web.servers import post

PACKAGE = Path(extender.__file__).parent
PAGE = Path(__file__).parents[2] / "docs/architecture.md"
VALUES = ("model/", "runtime/", "errors")


def followed(served: Application, request: bytes) -> tuple[bytes, list[str]]:
    """The answer, and the files that are run until find_fit begins, each once."""
    client, accepted = socket.socketpair()
    client.sendall(request)
    client.shutdown(socket.SHUT_WR)
    files: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            files[Path(frame.f_code.co_filename).relative_to(PACKAGE).with_suffix("").as_posix()] = None
            if frame.f_code is find_fit.__code__:
                sys.setprofile(None)

    connection = ClientConnection(accepted, "", served, Budget(1 << 20, 1, 1), None)
    sys.setprofile(note)
    try:
        connection.serve()
    finally:
        sys.setprofile(None)
    return client.recv(1 << 16), [file for file in files if not file.startswith(VALUES)]


def test_the_page_names_the_files_that_a_call_passes(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.json"
    cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [make_node("n1").obj()]}))
    settings = Settings(cluster=cluster)
    app = application(settings, feed_factory_of(settings), UnsettledWrites(10.0))
    request = post(json.dumps({"Pod": make_pod("p").uid("u").obj(), "NodeNames": ["n1"]}).encode(), "/scheduler/filter")
    app.lifecycle.start()
    try:
        followed(app, request)  # the first call makes the table
        # Housekeeping has the table in its hands once a second, and a call at that moment another one made.
        answer, passed = min((followed(app, request) for _ in range(3)), key=lambda each: len(each[1]))
    finally:
        app.lifecycle.stop()
    assert b'"NodeNames":["n1"]' in answer
    named = PAGE.read_text().partition("| step | files |")[2].partition("\n\n")[0]
    reported = re.findall(r"`([a-z0-9_/]+)`", named)
    assert passed == reported
    assert passed[4] == "verbs/filter"  # the page says that five files carry the call to the verb
