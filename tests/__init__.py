"""Tests. No process of theirs has had another before it, so none waits for what that may have bound."""

import os

os.environ.setdefault("EXTENDER_SETTLE_SECONDS", "0")
