"""The chart as one file, as a registry keeps it: `python -m tests.manifests.packaging DIRECTORY`.

With PROJECT_URL in the environment, that becomes the chart's home, to which the alerts' runbook_url leads.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.manifests.rendering import CHART
from tests.stock.build import build


def package(helm: Path, directory: Path, project_url: str = "") -> Path:
    """Checks the chart and packages it into the directory; returns the file."""
    with TemporaryDirectory() as temporary:
        chart = shutil.copytree(CHART, Path(temporary) / CHART.name)
        if project_url:
            with (chart / "Chart.yaml").open("a") as about:
                about.write(f"home: {project_url}\nsources: [{project_url}]\n")
        subprocess.run([helm, "lint", "--strict", "--quiet", chart], check=True)
        subprocess.run([helm, "package", chart, "--destination", directory], check=True, stdout=subprocess.DEVNULL)
    (packaged,) = directory.glob("podseat-*.tgz")
    return packaged


if __name__ == "__main__":
    on_path = shutil.which("helm")
    helm = Path(on_path) if on_path else build(on_request=["helm"])["helm"]
    print(package(helm, Path(sys.argv[1]), os.environ.get("PROJECT_URL", "")))
