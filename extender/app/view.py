"""The composition root of `extender view`: the pages about a snapshot, on this machine alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from extender.app.ui import providers
from extender.errors import MalformedRequest
from extender.framework.profile import Profiles
from extender.offline.cluster import Cluster, state_of
from extender.offline.recording.reading import Recording
from extender.offline.recording.worlds import Rules
from extender.ui.documents import Arguments, Choices, Look, Timeline
from extender.ui.site import Site
from extender.web.debug import UI
from extender.web.pages import PageServer

LOOPBACK = "127.0.0.1"
_STEPS_KEPT = 8

LookOf = Callable[[Arguments], Look]


def look_at_cluster(cluster: Cluster, source: str, unread: Sequence[str]) -> LookOf:
    """Returns what shows the cluster; `source`: where it comes from, `unread`: what could not be read of it."""
    look = Look(state_of(cluster), 0, source, _time(datetime.now(UTC).timestamp()), unread)
    return lambda _: look


def look_at_recording(path: Path, profiles: Profiles | None) -> LookOf:
    """Returns what shows the cluster before the step that is asked for, or after the last.

    Args:
        profiles: to judge by; None: those of the recording.

    Raises:
        MalformedCluster, OSError: it cannot be read.
        ConfigurationError: a rule of the recording cannot be imported here.
    """
    recording = Recording.load(path)
    judged_by = profiles or Rules.recorded(recording.header.settings).profiles

    @lru_cache(maxsize=_STEPS_KEPT)
    def at(step: int) -> Look:
        timeline = Timeline(recording, step)
        cluster = recording.cluster(step, judged_by)
        moment = _time(recording.steps[min(step, timeline.steps - 1)].at) if timeline.steps else ""
        return Look(state_of(cluster), step, path.name, moment, (), timeline)

    def look(arguments: Arguments) -> Look:
        last, given = len(recording.steps), arguments.get("step")
        if given is not None and not (given.isdecimal() and int(given) <= last):
            raise MalformedRequest(f"?step={given}: want a step from 0 to {last}")
        return at(last if given is None else int(given))

    return look


def view(look: LookOf, choices: Choices, port: int, announce: Callable[[str], None]) -> None:
    """Serves the pages until the process is interrupted.

    Args:
        choices: without others to compare with, those that every site has.
        announce: told the address once somebody listens there.

    Raises:
        OSError: the port is taken.
    """
    site = Site(look, choices if choices.others else replace(choices, others=providers()))
    server = PageServer(LOOPBACK, port, site.pages())
    server.start()
    try:
        announce(f"http://{LOOPBACK}:{server.port}{UI}")
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
