"""The console script, for servers that are started by their module's name."""

from __future__ import annotations

from extender.cli.main import main

if __name__ == "__main__":
    main()
