"""`extender plan` as a process: what a solver might write would be among the answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.builders import make_pod

EXTENDER = str(Path(sys.executable).with_name("extender"))
EXAMPLE = str(Path(__file__).parents[2] / "extender/offline/example.yaml")


@pytest.mark.processes
def test_the_solver_writes_nothing_into_the_answer(tmp_path: Path) -> None:
    pytest.importorskip("highspy")
    big = make_pod("big").req(cpu="7500m").node_selector({"node.kubernetes.io/instance-type": "general-8"})
    (tmp_path / "big.yaml").write_text(yaml.safe_dump(big.obj()))
    arguments = ["plan", "--cluster", EXAMPLE, "-f", str(tmp_path / "big.yaml"), "-o", "json"]
    done = subprocess.run([EXTENDER, *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert (document["outcome"], document["smallest"], len(document["moves"])) == ("moves", True, 2)
