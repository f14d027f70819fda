"""Everything that states a version states that of the newest release."""

from __future__ import annotations

import configparser
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

from tests.distribution.release import ROOT, newest_release

CHART = yaml.safe_load((ROOT / "charts/podseat/Chart.yaml").read_text())
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")


def test_a_checkout_without_tags_starts_from_the_newest_release() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert pyproject["tool"]["setuptools_scm"]["fallback_version"] == newest_release()


def test_the_chart_has_the_version_of_the_program() -> None:
    assert (CHART["version"], CHART["appVersion"]) == (newest_release(), newest_release())


@pytest.mark.parametrize("extra", ["", "certs"])
def test_what_users_install_forbids_no_newer_version(extra: str) -> None:
    """Other packages in the same environment may need one; the image pins its own in constraints.txt."""
    asked = SETUP["options.extras_require"][extra] if extra else SETUP["options"]["install_requires"]
    limited = [
        line
        for line in asked.split("\n")
        if line and {each.operator for each in Requirement(line).specifier} & {"<", "<=", "==", "~="}
    ]
    assert limited == []
