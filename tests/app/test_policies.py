"""Policies from files: the folder of a policy is searched for its rules alone, and last."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from extender.app.policies import profiles_of
from extender.errors import ConfigurationError

RULE = "from extender import predicate\n\n@predicate\ndef {name}(pod, node):\n    return True\n"
READ = (
    "import sys; from pathlib import Path; from extender.app.policies import profiles_of;"
    "profiles_of(Path({policy!r})); import kubernetes; print(kubernetes.__file__, {folder!r} in sys.path)"
)


def policy(filters: str) -> str:
    plugins = f"profiles: [{{plugins: {{filter: {{enabled: [{filters}]}}}}}}]"
    return f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{plugins}\n"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("filters", "searched"),
    [pytest.param("", "False", id="no rules"), pytest.param('{name: "own:ours"}', "True", id="a rule of its own")],
)
def test_a_planted_module_takes_the_place_of_no_installed_one(filters: str, searched: str, tmp_path: Path) -> None:
    """In a process of its own, since imports stay."""
    (tmp_path / "kubernetes.py").write_text("raise SystemExit('planted')")
    (tmp_path / "own.py").write_text(RULE.format(name="ours"))
    file = tmp_path / "policy.yaml"
    file.write_text(policy(filters))
    code = READ.format(policy=str(file), folder=str(tmp_path.resolve()))
    reported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert reported.returncode == 0, reported.stderr
    where, was_searched = reported.stdout.split()
    assert str(tmp_path) not in where
    assert was_searched == searched


def test_a_policy_may_be_gzipped(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml.gz"
    data = gzip.compress(policy("").encode())
    file.write_bytes(data)
    profiles = profiles_of(file)
    assert profiles is not None
    assert tuple(profiles.names) == ("default-scheduler",)
    for damaged, message in ((data[:-12], "the gzip file is cut off"), (data[:10] + b"x" * 50, "is damaged")):
        file.write_bytes(damaged)
        with pytest.raises(ConfigurationError, match=message):
            profiles_of(file)


def test_a_module_that_an_installed_one_hides_is_reported(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(RULE.format(name="ours"))
    (tmp_path / "policy.yaml").write_text(policy('{name: "json:ours"}'))
    with pytest.raises(ConfigurationError, match="an installed module json hides the module beside the policy"):
        profiles_of(tmp_path / "policy.yaml")
