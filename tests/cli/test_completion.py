"""Completion in a shell: the scripts, and names of a file or a live cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from extender.cli import completion
from extender.cli.main import cli, kubectl
from tests.builders import make_composite_pod_group, make_node, make_pod, make_pod_group
from tests.cluster.fake_api import PODS, fake_api
from tests.stock.process import free_port

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "extender/offline/example.yaml")
GROUPS = str(ROOT / "examples/pod-groups.yaml")


@pytest.fixture(autouse=True)
def no_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")


def complete(*words: str, group: click.Group = cli) -> list[str]:
    *before, incomplete = words
    return [item.value for item in ShellComplete(group, {}, "extender", "").get_completions(before, incomplete)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_asks_the_command(shell: str) -> None:
    printed = CliRunner().invoke(cli, ["completion", shell])
    assert printed.exit_code == 0
    assert f"_EXTENDER_COMPLETE={shell}_complete" in printed.stdout
    assert CliRunner().invoke(cli, ["completion", "tcsh"]).exit_code == 2


def test_the_installed_command_answers_the_script() -> None:
    extender = str(Path(sys.executable).parent / "extender")
    words = f"extender explain --cluster {EXAMPLE} ml/recommend"
    environment = {**os.environ, "_EXTENDER_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "4"}
    done = subprocess.run([extender], env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert "plain,ml/recommend-7f6d-v4nzs" in done.stdout.splitlines()
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("explain", "--cluster", EXAMPLE, "ml/recommend-7f6d-v"), ["ml/recommend-7f6d-v4nzs"]),
        (("explain", "--cluster", EXAMPLE, "-n", "ml", "recommend-7f6d-v"), ["recommend-7f6d-v4nzs"]),
        (("explain", "--cluster", GROUPS, "ml/podgroup/"), ["ml/podgroup/train"]),
        (("explain", "--cluster", EXAMPLE, "--node", "gpu-a"), ["gpu-a1"]),
        (("simulate", "--cluster", EXAMPLE, "--drain", "general-a"), ["general-a1", "general-a2", "general-a3"]),
        (("explain", "-o", "j"), ["json", "jsonpath="]),
        (("upg",), ["upgrade-check"]),
    ],
)
def test_names_are_those_of_the_file(words: Sequence[str], expected: list[str]) -> None:
    assert set(expected) <= set(complete(*words))
    assert all(name.startswith(words[-1]) for name in complete(*words))


def test_names_are_those_of_the_live_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "LIMIT_SECONDS", 60.0)  # a slow machine is no fault here
    with fake_api(make_node("n1").obj()) as api:
        api.put(PODS, make_pod("web-0").obj())
        config = str(api.kubeconfig(tmp_path))
        assert complete("explain", "--kubeconfig", config, "") == ["default/web-0"]
        assert complete("explain", "--kubeconfig", config, "--node", "n") == ["n1"]


def test_groups_are_named_in_the_version_that_the_cluster_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "LIMIT_SECONDS", 60.0)  # a slow machine is no fault here
    with fake_api() as api:
        api.put(PODS, make_pod("web-0").obj())
        for group, version in ((make_pod_group("g"), "v1beta1"), (make_composite_pod_group("tree"), "v1alpha3")):
            path = f"/apis/scheduling.k8s.io/{version}/{group['kind'].lower()}s"
            api.collections[path] = {}
            api.put(path, group)
        found = complete("explain", "--kubeconfig", str(api.kubeconfig(tmp_path)), "")
        assert found == ["default/compositepodgroup/tree", "default/podgroup/g", "default/web-0"]


def test_contexts_are_those_of_the_kubeconfig(tmp_path: Path) -> None:
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("production", "staging")]
    (tmp_path / "config").write_text(yaml.safe_dump({"contexts": contexts, "clusters": [], "users": []}))
    assert complete("explain", "--kubeconfig", str(tmp_path / "config"), "--context", "pro") == ["production"]


@pytest.mark.parametrize("fault", ["nothing listens", "a malformed kubeconfig", "no kubeconfig", "no file"])
def test_without_an_answer_nothing_is_offered(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    server = {"clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{free_port()}"}}], "users": []}
    context = {"contexts": [{"name": "x", "context": {"cluster": "c", "user": ""}}], "current-context": "x"}
    config.write_text("{" if fault == "a malformed kubeconfig" else yaml.safe_dump({**server, **context}))
    monkeypatch.setenv("KUBECONFIG", "/nonexistent" if fault == "no kubeconfig" else str(config))
    cluster = ["--cluster", "/nonexistent"] if fault == "no file" else []
    assert complete("explain", *cluster, "web") == []
    assert capsys.readouterr() == ("", "")


def test_names_that_a_shell_would_run_are_not_offered(tmp_path: Path) -> None:
    names = ("web-0", "web-$(touch x)", "web-`id`", "web-\u00e9", "web-a b", "web-1;id")
    items = [make_pod(name).obj() for name in names]
    (tmp_path / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert complete("explain", "--cluster", str(tmp_path / "c.json"), "default/web") == ["default/web-0"]


def test_standard_input_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []

    def load(path: object) -> list[object]:
        read.append(path)
        return []

    monkeypatch.setattr("extender.snapshots.files.load", load)
    assert complete("explain", "--cluster", "-", "web") == []
    assert read == []


def test_kubectl_completes_files_for_an_option_that_takes_one(capsys: pytest.CaptureFixture[str]) -> None:
    completion.answer_kubectl(kubectl, "podseat", ["-f", ""])
    assert capsys.readouterr().out == ":0\n"


def test_kubectl_gets_completions_in_its_own_form(capsys: pytest.CaptureFixture[str]) -> None:
    completion.answer_kubectl(kubectl, "podseat", ["--cluster", EXAMPLE, "ml/recommend-7f6d-v"])
    assert capsys.readouterr().out == "ml/recommend-7f6d-v4nzs\n:4\n"
    completion.answer_kubectl(kubectl, "podseat", ["--no-ch"])
    assert capsys.readouterr().out.splitlines()[0].startswith("--no-changes\t")
    completion.answer_kubectl(kubectl, "podseat", [])
    assert capsys.readouterr().out.endswith(":4\n")
