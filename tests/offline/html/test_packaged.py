"""Whatever stands beside the modules is in the wheel too."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_file_that_is_no_module_is_package_data() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    patterns = setup["options.package_data"]["extender"].split()
    packaged = {path for pattern in patterns for path in (ROOT / "extender").glob(pattern)}
    files = {path for path in (ROOT / "extender").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path for path in files if path.suffix != ".py"} - packaged == set()
    assert {path.suffix for path in packaged} >= {".html", ".css", ".js"}
