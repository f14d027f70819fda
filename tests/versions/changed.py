"""Prints the upstream files that differ between two versions of Kubernetes, as far as decisions may depend on them.

`python -m tests.versions.changed v1.38.0` shows what has changed since the version that the extender was last compared
with; without a version, up to the newest that the module proxy serves. `--from v1.37.1` begins with another one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.stock.build import GO_MINIMUM_OF_NEXT, NEXT_VERSION, GoMissingError, find_go

WATCHED: Mapping[str, tuple[str, ...]] = {
    "k8s.io/kubernetes": (
        "pkg/scheduler",
        "pkg/features",
        "pkg/apis/core",
        "pkg/apis/resource",
        "pkg/apis/scheduling",
        "cmd/kube-scheduler",
        "plugin/pkg/auth/authorizer/rbac/bootstrappolicy",
    ),
    "k8s.io/api": ("core", "policy", "resource", "scheduling", "storage"),
    "k8s.io/apimachinery": ("pkg/api/resource",),
    "k8s.io/component-helpers": ("nodedeclaredfeatures", "resource", "scheduling", "storage"),
    "k8s.io/dynamic-resource-allocation": ("cel", "deviceclass", "resourceclaim", "structured"),
    "k8s.io/kube-scheduler": ("",),
}
"""Module -> the folders that decide what the scheduler does."""
_LEFT_OUT = re.compile(r"_test\.go$|(^|/)(testing|testdata|test)/|zz_generated|generated\.pb|generated\.protomessage")
_VERSION = re.compile(r"v1\.(\d+\.\d+(-(alpha|beta|rc)\.\d+)?)")
_STAGES = {"alpha": 0, "beta": 1, "rc": 2, "": 3}


def main() -> int:
    parser = ArgumentParser("python -m tests.versions.changed", description=__doc__)
    parser.add_argument("to", nargs="?", help="such as v1.38.0; default: the newest that is served")
    parser.add_argument("--from", dest="begin", default=f"v{NEXT_VERSION}", help="default %(default)s")
    options = parser.parse_args()
    to = options.to or newest(_go("list", "-m", "-versions", "k8s.io/kubernetes").split()[1:])
    if to == options.begin:
        print(f"{to} is the newest version that is served, and the one that was compared")
        return 0
    print(f"{options.begin} -> {to}")
    for module, folders in WATCHED.items():
        before, after = (_files(module, version, folders) for version in (options.begin, to))
        for line in differences(before, after):
            print(f"{module}/{line}")
    return 0


def newest(versions: list[str]) -> str:
    """Returns the newest of these versions, release candidates and betas included."""
    return max(filter(_VERSION.fullmatch, versions), key=_order)


def _order(version: str) -> tuple[int, int, int, int]:
    release, _, stage = version.removeprefix("v1.").partition("-")
    name, _, number = stage.partition(".")
    minor, patch = map(int, release.split("."))
    return minor, patch, _STAGES[name], int(number or 0)


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """Yields a line for each file that differs: the path, and how many lines are added and removed.

    Lines that only moved are not counted.
    """
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old != new:
            lines_before, lines_after = (Counter((text or "").splitlines()) for text in (old, new))
            added, removed = (lines_after - lines_before).total(), (lines_before - lines_after).total()
            what = " (new file)" if old is None else " (removed)" if new is None else ""
            yield f"{path} +{added} -{removed}{what}"


def _files(module: str, version: str, folders: tuple[str, ...]) -> Mapping[str, str]:
    """Returns path -> text of the module's Go files below these folders, without tests and generated files."""
    version = version if module == "k8s.io/kubernetes" else version.replace("v1.", "v0.", 1)
    root = Path(json.loads(_go("mod", "download", "-json", f"{module}@{version}"))["Dir"])
    paths = (path for folder in folders for path in sorted((root / folder).rglob("*.go")))
    named = ((str(path.relative_to(root)), path) for path in paths)
    return {name: path.read_text() for name, path in named if not _LEFT_OUT.search(name)}


def _go(*arguments: str) -> str:
    with tempfile.TemporaryDirectory() as outside_of_a_module:
        command = [find_go(GO_MINIMUM_OF_NEXT), *arguments]
        done = subprocess.run(command, cwd=outside_of_a_module, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"`go {' '.join(arguments)}` failed:\n{done.stderr or done.stdout}")
    return done.stdout


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GoMissingError as error:
        sys.exit(str(error))
