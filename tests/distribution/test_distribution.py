"""What `make wheel` builds: an sdist of every file, a README without dead links, and a wheel that works by itself.

The wheel is installed into an environment that has nothing of the checkout. Its requirements are the packages that are
installed here already; with INSTALL=all, as in `make test-distribution`, pip fetches what the wheel itself asks for.
"""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders import make_node, make_pod
from tests.distribution.release import ROOT
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process, free_port
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.slow

POLICY = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
URL = "https://forge.example/podseat"
GENERATED = re.compile(r"PKG-INFO|podseat\.egg-info/.*|extender/runtime/commit\.txt")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Returns what a command prints; its failure is an assertion."""
    names = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ended = subprocess.run(
        command, cwd=cwd, env={**names, **environment}, capture_output=True, text=True, check=False, timeout=280
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return ended.stdout


@dataclass(frozen=True)
class Built:
    """A clone of the checkout, in which the distribution was built."""

    clone: Path

    @property
    def wheel(self) -> Path:
        (wheel,) = self.clone.glob("dist/*.whl")
        return wheel

    @property
    def sdist(self) -> Path:
        (sdist,) = self.clone.glob("dist/*.tar.gz")
        return sdist


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    clone = tmp_path_factory.mktemp("distribution") / "clone"
    run("git", "clone", "--quiet", "--shared", ROOT, clone, cwd=ROOT)
    run("make", "image-context", f"PYTHON={sys.executable}", f"PROJECT_URL={URL}", cwd=clone)
    return Built(clone)


@pytest.fixture(scope="module")
def python(built: Built) -> Path:
    """An interpreter of an environment with the wheel and its requirements."""
    folder = built.clone.parent / "installed"
    venv.create(folder, with_pip=os.environ.get("INSTALL") == "all")
    python = folder / "bin" / "python"
    if os.environ.get("INSTALL") == "all":
        run(python, "-m", "pip", "install", "--quiet", built.wheel, cwd=folder)
        return python
    run(sys.executable, "-m", "pip", f"--python={python}", "install", "--no-deps", "--quiet", built.wheel, cwd=folder)
    purelib = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    Path(purelib, "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_the_sdist_has_every_file_of_the_checkout(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        files = {member.name.partition("/")[2] for member in sdist if member.isfile()}
    tracked = set(run("git", "ls-files", cwd=built.clone).splitlines())
    # setuptools writes a setup.cfg of its own, which is the same file with a section more
    assert {file for file in files if not GENERATED.fullmatch(file)} == tracked


def test_no_link_of_the_readme_is_relative(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(wheel.read(name))
    readme = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)]+)\)", readme)
    assert f"{URL}/blob/HEAD/docs/index.md" in links
    assert [link for link in links if not link.startswith("https://")] == []
    assert metadata["Name"] == "podseat"
    assert f"Source, {URL}" in metadata.get_all("Project-URL", [])


def test_without_an_address_the_readme_has_no_relative_links(built: Built) -> None:
    printed = run(built.clone / ".venv-build/bin/python", "setup.py", "--long-description", cwd=built.clone)
    assert "troubleshooting" in printed
    assert re.findall(r"\]\((?!https?:)", printed) == []


def test_the_image_gets_these_files_and_no_others(built: Built) -> None:
    context = built.clone / "build/image"
    names = {path.name for path in context.iterdir()}
    assert names == {"Dockerfile", "LICENSE", "NOTICE", "constraints.txt", built.wheel.name}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (context / "Dockerfile").read_text(), re.MULTILINE)
    assert {path.name for each in copied for word in each.split() for path in context.glob(word)} == names - {
        "Dockerfile"
    }


def test_the_installed_package_is_not_the_checkout(python: Path, tmp_path: Path) -> None:
    home = Path(run(python, "-c", "import extender; print(extender.__file__)", cwd=tmp_path).strip())
    assert home.is_relative_to(python.parents[1])


def test_it_knows_its_version_and_commit(built: Built, python: Path, tmp_path: Path) -> None:
    commit = run("git", "rev-parse", "--short=9", "HEAD", cwd=built.clone).strip()
    printed = run(python.with_name("extender"), "--version", cwd=tmp_path)
    assert printed == f"extender {built.wheel.name.split('-')[1]} (commit {commit})\n"


@pytest.fixture(scope="module")
def cluster(python: Path) -> Path:
    """The example cluster that the wheel has in it."""
    folder = python.parents[1]
    code = "from importlib.resources import files; print(files('extender') / 'offline/example.yaml')"
    return Path(run(python, "-c", code, cwd=folder).strip())


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("explain --cluster {} -o json", id="explain"),
        pytest.param("explain shop/web-6d5f8-m7d3x --cluster {} -o html", id="explain -o html"),
        pytest.param("simulate --cluster {} --add-node gpu-a1=2 --delete data/warehouse-0 -o json", id="simulate"),
        pytest.param("capacity --cluster {} -n shop deploy/web -o json", id="capacity"),
        pytest.param("compare --cluster {} --policy policy.yaml -o json", id="compare"),
        pytest.param("snapshot --cluster {} -o cluster.json.gz", id="snapshot"),
        pytest.param("reference metrics", id="reference"),
    ],
)
def test_an_offline_command_answers(python: Path, cluster: Path, tmp_path: Path, arguments: str) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    run(python.with_name("extender"), *arguments.format(cluster).split(), cwd=tmp_path)


@contextmanager
def serving(python: Path, path: Path, *arguments: str | Path) -> Iterator[str]:
    """Runs a server of the installed package; yields its address when it is alive."""
    address = f"127.0.0.1:{free_port()}"
    command = [python.with_name("extender"), *arguments, "--bind", address]
    process = Process("installed", command, path / "log")
    try:
        run("curl", "-fsS", "--retry", "60", "--retry-delay", "1", "--retry-all-errors", f"{address}/readyz", cwd=path)
        yield address
    finally:
        process.stop()


def test_demo_serves_its_cluster_and_its_page(python: Path, tmp_path: Path) -> None:
    with serving(python, tmp_path, "demo") as address:
        page = run("curl", "-fsSL", address, cwd=tmp_path)
        assert f'<a href="{URL}/blob/HEAD/docs/index.md">documentation</a>' in page


@pytest.mark.stock
def test_serve_and_schedule_work_with_a_cluster(python: Path, tmp_path: Path, control_plane: ControlPlane) -> None:
    kubeconfig = f"--kubeconfig={control_plane.kubeconfig}"
    control_plane.client.create(make_node("n").capacity(cpu="8", memory="8Gi", pods="20").obj(), make_pod("p").obj())
    with serving(python, tmp_path, "serve", kubeconfig) as address:
        assert "extender_build_info" in run("curl", "-fsS", f"{address}/metrics", cwd=tmp_path)
    with serving(python, tmp_path, "schedule", kubeconfig, "--scheduler-name", "default-scheduler"):
        assert wait_until(lambda: control_plane.client.get("Pod", "p")["spec"].get("nodeName") == "n")
