"""What the image installs: pinned, by hash, within what setup.cfg asks for, and with its licences listed."""

from __future__ import annotations

import configparser
import re
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.manifests.rendering import ROOT

PINNED = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
ASKED = [
    *SETUP["options"]["install_requires"].split("\n"),
    *SETUP["options.extras_require"]["certs"].split("\n"),
]


@pytest.mark.parametrize("asked", [line for line in ASKED if line])
def test_what_setup_cfg_asks_for_is_pinned(asked: str) -> None:
    requirement = Requirement(asked)
    assert requirement.specifier.contains(PINNED[requirement.name])


def test_every_version_has_its_hashes() -> None:
    blocks = re.split(r"^(?=[\w.-]+==)", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)[1:]
    assert len(blocks) == len(PINNED)
    assert [block for block in blocks if "--hash=sha256:" not in block] == []


def test_the_image_installs_nothing_else() -> None:
    text = (ROOT / "Dockerfile").read_text()
    installs = re.findall(r"pip install (.*)", text)
    assert all("--require-hashes -r" in each or "--no-deps" in each for each in installs)
    assert len(installs) == 2


def test_the_base_image_is_named_by_its_digest() -> None:
    images = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert re.fullmatch(r"python:3\.13-slim@sha256:[0-9a-f]{64}", images[0])
    assert set(images[1:]) == {"base"}


def test_the_build_backend_is_pinned_with_its_hash() -> None:
    pinned = re.findall(r"^(\S+==\S+) .*\n +--hash=", (ROOT / "build-requirements.txt").read_text(), re.MULTILINE)
    assert set(pinned) > set(tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"])


def test_every_licence_is_listed() -> None:
    listed = dict(re.findall(r"^([a-z][\w.-]+) {2,}(\S.*)$", (ROOT / "NOTICE").read_text(), re.MULTILINE))
    assert listed.keys() == PINNED.keys()
