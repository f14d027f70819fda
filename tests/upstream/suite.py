"""The specs of Kubernetes, copied from the module cache, changed where they need a kubelet, and built."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.stock.build import KUBERNETES_VERSION, Binaries, BuildError, Report, cache_directory, find_go, link_flags

_MODULE = Path(__file__).parent / "go"
_OWN_PACKAGE = "extender.test/upstream/dra/utils"

Edits = Mapping[str, tuple[tuple[str, str], ...]]

_VALIDATE_CLAIM = "func validateClaim(tCtx ktesting.TContext, claim *resourceapi.ResourceClaim) {\n"
_TEST_CONTAINER_ENV = (
    "func TestContainerEnv("
    "tCtx ktesting.TContext, pod *v1.Pod, containerName string, fullMatch bool, env ...string) {\n"
)
# By file: what stands there, and what is to stand there instead. No driver registers with a kubelet, a pod is right
# when it is scheduled, nothing is read in containers, and what needs test/integration/dra is left out.
_DRA: Edits = {
    "*.go": (("k8s.io/kubernetes/test/e2e/dra/utils", _OWN_PACKAGE),),
    "dra.go": (
        ('\tdratest "k8s.io/kubernetes/test/integration/dra"\n', ""),
        ("dratest.TestCreateResourceSlices(f.TContext(ctx), 10)", 'ginkgo.Skip("needs test/integration/dra")'),
        ("driver.WithKubelet = true", "driver.WithKubelet = false"),
    ),
    "utils/deploy.go": (
        ("WithKubelet:                true,", "WithKubelet:                false,"),
        # or a claim that is not as it should be ends the whole run
        (_VALIDATE_CLAIM, f"{_VALIDATE_CLAIM}\tdefer ginkgo.GinkgoRecover()\n"),
    ),
    "utils/builder.go": ((_TEST_CONTAINER_ENV, f"{_TEST_CONTAINER_ENV}\tif len(env) >= 0 {{\n\t\treturn\n\t}}\n"),),
}
# Commands on hosts do nothing.
_LOCAL_VOLUMES: Edits = {
    "persistent_volumes-local.go": (
        ("utils.NewHostExec(f)", "noExec{}"),
        ("package storage\n", "package localpv\n"),
    ),
}
_NO_EXEC = """package localpv

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/test/e2e/storage/utils"
)

type noExec struct{}

func (noExec) Execute(context.Context, string, *v1.Node) (r utils.Result, err error)            { return }
func (noExec) IssueCommandWithResult(context.Context, string, *v1.Node) (out string, err error) { return }
func (noExec) IssueCommand(context.Context, string, *v1.Node) error                             { return nil }
func (noExec) Cleanup(context.Context)                                                          {}
"""


def build_suite(report: Report) -> Binaries:
    """Returns e2e.test, fakekubelet and kube-controller-manager by name; builds what is missing, some minutes once.

    Raises GoMissingError, or BuildError with what Go said.
    """
    directory = cache_directory() / f"upstream-{_key()}"
    programs = {
        "fakekubelet": ("build", "./fakekubelet"),
        "kube-controller-manager": ("build", "k8s.io/kubernetes/cmd/kube-controller-manager"),
        "e2e.test": ("test", "./e2e"),
    }
    binaries = {name: directory / "bin" / name for name in programs}
    if all(path.exists() for path in binaries.values()):
        return binaries
    go = find_go()
    module = _copy_of_the_module(go, directory)
    for name, (verb, package) in programs.items():
        report(f"building {name} ...")
        compile_only = ["-c"] if verb == "test" else []
        _go(go, module, verb, *compile_only, "-ldflags", link_flags(), "-o", str(binaries[name]), package)
    return binaries


def _key() -> str:
    digest = hashlib.sha256(f"{KUBERNETES_VERSION} {_DRA} {_LOCAL_VOLUMES} {_NO_EXEC}".encode())
    for path in sorted(path for path in _MODULE.rglob("*") if path.is_file()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _copy_of_the_module(go: str, directory: Path) -> Path:
    """The module with upstream's specs in it."""
    module = directory / "go"
    shutil.rmtree(module, ignore_errors=True)
    shutil.copytree(_MODULE, module)
    _go(go, module, "mod", "download", "k8s.io/kubernetes")
    e2e = Path(_go(go, module, "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").strip()) / "test/e2e"
    for source, target in (("dra/*.go", "dra"), ("dra/utils/*.go", "dra/utils")):
        _copy(e2e, source, module / target)
    _copy(e2e, "storage/persistent_volumes-local.go", module / "localpv")
    _edit(module / "dra", _DRA)
    _edit(module / "localpv", _LOCAL_VOLUMES)
    (module / "localpv/no_exec.go").write_text(_NO_EXEC)
    return module


def _copy(root: Path, pattern: str, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in root.glob(pattern):
        (target / path.name).write_bytes(path.read_bytes())


def _edit(directory: Path, edits: Edits) -> None:
    """Makes the edits. Raises BuildError where nothing is to be edited: upstream has changed."""
    for pattern, changes in edits.items():
        paths = [*directory.glob(pattern)]
        for old, new in changes:
            found = [path for path in paths if old in path.read_text()]
            if not found:
                raise BuildError(f"{directory.name}/{pattern} of Kubernetes {KUBERNETES_VERSION} has no {old!r}")
            for path in found:
                path.write_text(path.read_text().replace(old, new))


def _go(go: str, module: Path, *arguments: str) -> str:
    result = subprocess.run([go, *arguments], cwd=module, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"`go {' '.join(arguments)}` failed:\n{result.stderr.strip()[-4000:]}")
    return result.stdout
