"""The commands of docs/install.md, run as an admin would, against a control plane."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.manifests.rendering import ROOT
from tests.running import EXTENDER
from tests.stock.control_plane import ControlPlane

_PAGE = ROOT / "docs/install.md"


def commands(section: str, part: str = "") -> list[str]:
    """Returns the commands of a section: those of the part `**part.**`, or those before any part."""
    (text,) = (each for each in re.split(r"^## ", _PAGE.read_text(), flags=re.MULTILINE) if each.startswith(section))
    parts = re.split(r"^(?=\*\*\w)", text, flags=re.MULTILINE)
    (chosen,) = (each for each in parts if each.startswith(f"**{part}" if part else section))
    found = [line[2:] for line in chosen.splitlines() if line.startswith("$ ")]
    assert found, f"docs/install.md: {section}: {part} has no commands"
    return found


class Shell:
    """Runs commands in a folder that has what the page's folder has, and whose files of a node are below `root`."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.root = folder / "node"
        self._folder = folder
        for name, target in (("charts", "charts"), ("manifests", "manifests"), ("control-plane.sh", None)):
            (folder / name).symlink_to(ROOT / (target or "examples/control-plane.sh"))
        (folder / "bin").mkdir()
        for binary in ("kubectl", "helm"):
            (folder / "bin" / binary).symlink_to(plane.binaries[binary])
        (folder / "bin/extender").symlink_to(EXTENDER)
        self._environment = {
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "HOME": str(folder),
            "ROOT": str(self.root),
            "KUBECONFIG": str(plane.kubeconfig),
        }

    def __call__(self, command: str) -> str:
        """Returns what it prints. Raises AssertionError if it fails."""
        ended = subprocess.run(
            command,
            shell=True,
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
        return ended.stdout + ended.stderr
