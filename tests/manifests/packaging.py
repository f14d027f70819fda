"""The chart as one file, as a registry keeps it: `python -m tests.manifests.packaging DIRECTORY`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.manifests.rendering import CHART
from tests.stock.build import build


def package(helm: Path, directory: Path) -> Path:
    """Checks the chart and packages it into the directory; returns the file."""
    subprocess.run([helm, "lint", "--strict", "--quiet", CHART], check=True)
    subprocess.run([helm, "package", CHART, "--destination", directory], check=True, stdout=subprocess.DEVNULL)
    (chart,) = directory.glob("podseat-*.tgz")
    return chart


if __name__ == "__main__":
    on_path = shutil.which("helm")
    print(package(Path(on_path) if on_path else build()["helm"], Path(sys.argv[1])))
