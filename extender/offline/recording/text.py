"""A replay, and the steps of a recording, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from extender.offline.quantities import listed
from extender.offline.recording.replay import ReplayResult
from extender.offline.recording.steps import RecordedStep
from extender.offline.tables import Cells, aligned, printable

MOST_ROWS = 20
_MOST_NODES = 3


def as_text(result: ReplayResult, *, every: bool = False) -> Iterator[str]:
    """Returns the outcome, and a line for each difference; `every`: uncut."""
    made = ", ".join(f"{count} {what}" for what, count in result.decided.items())
    yield f"{sum(result.decided.values())} decisions made again{f' ({made})' if made else ''}: {_differ(result)}"
    yield from (f"{count} left out: {why}" for why, count in result.left_out.items())
    yield from (printable(f"note: {note}") for note in result.notes)
    lines: list[Cells] = [("STEP", "TIME", "DECISION", "POD", "RECORDED", "REPLAYED", "CAUSE", "NODES")]
    for each in result.changed:
        about = (str(each.step.number), _time(each.step.at), each.what, each.step.subject)
        lines += [
            (*about, one.recorded, one.replayed, one.cause or "-", listed(one.nodes, _MOST_NODES) or "-")
            for one in each.differences
        ]
    if len(lines) > 1:
        yield ""
        shown = lines if every else lines[: MOST_ROWS + 1]
        yield from aligned(shown)
        if len(lines) > len(shown):
            yield f"and {len(lines) - len(shown)} more: see -o wide"


def steps_text(steps: Sequence[RecordedStep]) -> Iterator[str]:
    """Returns a line for each step."""
    head = ("STEP", "TIME", "KIND", "ABOUT", "WHAT")
    yield from aligned(
        [head, *((str(each.number), _time(each.at), each.kind, each.subject or "-", each.text) for each in steps)]
    )


def _differ(result: ReplayResult) -> str:
    return f"{len(result.changed)} differ" if result.changed else "none differs"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S.%f")[:-3]
