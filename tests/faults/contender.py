"""One of several replicas, which may be stopped, ended, or killed while it leads."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Self

from tests.faults.mortal import MortalExtender


class Contender(MortalExtender):
    """A MortalExtender that need not be ready."""

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.signal(signal.SIGCONT)
        super().__exit__(*exc)

    def ready(self) -> bool:
        return self.running.ready()

    def synced(self) -> bool:
        """Returns True if its cache is filled, even if the other one leads."""
        return "[+]cache ok" in self.running.readiness("?verbose")[1]

    def signal(self, number: signal.Signals) -> None:
        """To the server and to its worker, for the server would start another worker in the place of a lost one."""
        for pid in filter(None, (self.running.process.pid, self.worker)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def restart(self) -> None:
        """SIGTERM, and a new one once it has ended."""
        self.deaths += 1
        self.running.process.stop()
        self._start()
