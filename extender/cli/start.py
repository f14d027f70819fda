"""The console scripts. They import the commands, and let Ctrl-C end the process silently during this import.

After the import, Ctrl-C raises KeyboardInterrupt as usual. This module and the `__init__` of its packages are imported
earlier, without this protection, so they import nothing that takes time.
"""

from __future__ import annotations

import signal
from types import ModuleType


def main() -> None:
    """Runs the command `extender`."""
    _commands().main()


def kubectl_podseat() -> None:
    """Runs `extender explain` for `kubectl podseat POD`. It is the console script `kubectl-podseat`."""
    _commands().kubectl_podseat()


def kubectl_complete() -> None:
    """Completes `kubectl podseat ...`. It is the console script that kubectl calls with the words typed so far."""
    _commands().kubectl_complete()


def _commands() -> ModuleType:
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # a shell's background job ignores the signal, and continues to do so
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from extender.cli import main as commands

    signal.signal(signal.SIGINT, handler)
    return commands
