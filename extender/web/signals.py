"""An application's life under a gunicorn worker that knows nothing of its `lifecycle`: gthread, sync."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from types import FrameType

from extender.web.worker.application import Lifecycle


def take_signals(lifecycle: Lifecycle) -> None:
    """Has SIGTERM lower readiness before the worker stops, SIGUSR2 compare, and the exit stop the application.

    Called where the application is loaded, which gunicorn does in the worker after it has set its own handlers. With
    --preload it does so before, and these handlers are replaced; so are they by `worker.ThreadPerConnection`, which
    does all of this by itself.
    """
    stop_worker = signal.getsignal(signal.SIGTERM)
    if not callable(stop_worker) or threading.current_thread() is not threading.main_thread():
        return

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        if lifecycle.draining:
            stop_worker(number, frame)
            return
        lifecycle.drain()
        # The signal itself again, for it wakes the worker from where it waits.
        again = threading.Timer(lifecycle.drain_seconds, os.kill, (os.getpid(), signal.SIGTERM))
        again.daemon = True
        again.start()

    signal.signal(signal.SIGTERM, on_sigterm)
    signal.siginterrupt(signal.SIGTERM, False)
    signal.signal(signal.SIGUSR2, lambda *_: lifecycle.compare())
    atexit.register(lifecycle.stop)
