"""The composition root of `extender view`: the pages about a snapshot, on this machine alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from extender.app.ui import providers
from extender.offline.cluster import Cluster, state_of
from extender.ui.documents import Choices, Look
from extender.ui.site import Site
from extender.web.debug import UI
from extender.web.pages import PageServer

LOOPBACK = "127.0.0.1"


def view(
    cluster: Cluster,
    source: str,
    unread: Sequence[str],
    choices: Choices,
    port: int,
    announce: Callable[[str], None],
) -> None:
    """Serves the pages until the process is interrupted.

    Args:
        source: where the cluster comes from; `unread`: what could not be read of it.
        choices: without others to compare with, those that every site has.
        announce: told the address once somebody listens there.

    Raises:
        OSError: the port is taken.
    """
    look = Look(state_of(cluster), 0, source, f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC", unread)
    site = Site(lambda _: look, choices if choices.others else replace(choices, others=providers()))
    server = PageServer(LOOPBACK, port, site.pages())
    server.start()
    try:
        announce(f"http://{LOOPBACK}:{server.port}{UI}")
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()
