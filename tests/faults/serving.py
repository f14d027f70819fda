"""`extender serve` on a snapshot, and what it takes up."""

from __future__ import annotations

from pathlib import Path

from tests.faults.mortal import MortalExtender


def on_snapshot(directory: Path, cluster: Path, *flags: str) -> MortalExtender:
    """An extender that needs no API server; its binds stay in memory."""
    return MortalExtender(directory, "--cluster", str(cluster), "--log-level=warning", *flags)


def threads(extender: MortalExtender) -> int:
    """Of the process that answers."""
    return len(list(Path(f"/proc/{extender.worker}/task").iterdir()))
