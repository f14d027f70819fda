"""No command imports packages that it does not use: `extender --help` must not load NumPy, nor the library a server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distribution.release import ROOT

pytestmark = pytest.mark.processes

EXAMPLE = str(ROOT / "extender/offline/example.yaml")
# Packages that take time or memory to import, and that only some commands need.
WATCHED = {
    "aiohttp", "cryptography", "flask", "greenlet", "gunicorn", "httptools", "jinja2", "kubernetes", "mcp", "msgspec",
    "numpy", "pandas", "prometheus_client", "werkzeug",
}  # fmt: skip
LIBRARY = {"msgspec", "numpy"}
RUN = "from click.testing import CliRunner; from extender.cli.main import cli; CliRunner().invoke(cli, {arguments!r})"
HELPS = """
from click.testing import CliRunner
from extender.cli.main import cli
for command in ("", *cli.commands):
    assert CliRunner().invoke(cli, [*command.split(), "--help"]).exit_code == 0
"""


def imported(program: str, cwd: Path) -> set[str]:
    """Returns the watched packages that a program has imported at its end."""
    report = "\nimport json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    ended = subprocess.run(
        [sys.executable, "-c", program + report], cwd=cwd, capture_output=True, text=True, check=True
    )
    return WATCHED & set(json.loads(ended.stdout))


@pytest.mark.parametrize(
    ("program", "packages"),
    [
        pytest.param("import extender", set(), id="the package"),
        pytest.param("import extender; extender.Cluster", LIBRARY, id="the library"),
        pytest.param("import extender; extender.predicate", LIBRARY, id="a rule"),
        pytest.param(HELPS, set(), id="the help of every command"),
    ],
)
def test_what_a_program_imports(program: str, packages: set[str], tmp_path: Path) -> None:
    assert imported(program, tmp_path) == packages


@pytest.mark.parametrize(
    ("arguments", "packages"),
    [
        pytest.param(["version"], set(), id="version"),
        pytest.param(["reference", "metrics"], set(), id="reference"),
        pytest.param(["completion", "bash"], set(), id="completion"),
        pytest.param(["certs", "pki"], {"cryptography"}, id="certs"),
        pytest.param(["explain", "--cluster", EXAMPLE], LIBRARY, id="explain"),
        pytest.param(["simulate", "--cluster", EXAMPLE], LIBRARY, id="simulate"),
        pytest.param(["simulate", "--cluster", EXAMPLE, "-o", "html"], {*LIBRARY, "jinja2"}, id="simulate -o html"),
        pytest.param(["snapshot", "--cluster", EXAMPLE, "-o", "cluster.json.gz"], LIBRARY, id="snapshot"),
        pytest.param(["demo", "filter"], LIBRARY, id="demo filter"),
    ],
)
def test_what_a_command_imports(arguments: list[str], packages: set[str], tmp_path: Path) -> None:
    assert imported(RUN.format(arguments=arguments), tmp_path) == packages
