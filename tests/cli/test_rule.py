"""`extender rule`: a rule begun, tried, and its faults reported by file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from extender.cli.main import cli
from extender.errors import ConfigurationError
from extender.plugins.users.function import CustomRule, custom_rules
from extender.policy.library import Library
from extender.policy.loading import load

MISSPELT = "r.py:4: AttributeError: 'Pod' object has no attribute 'lables' (did you mean labels?)"
NO_ANSWER = "r.py:2: TypeError: a predicate of (pod, node) must return True, False, None or a reason, not 3"
EXAMPLE = Path(__file__).parents[2] / "extender" / "offline" / "example.yaml"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["rule", *arguments])


def tried(path: Path, text: str, *flags: str) -> Result:
    path.write_text("from extender import predicate, priority\n" + text)
    return run("test", str(path), "--cluster", str(EXAMPLE), *flags)


def test_a_new_rule_can_be_tried_and_used_by_a_policy(tmp_path: Path) -> None:
    assert run("new", "shop_nodes", "--folder", str(tmp_path)).exit_code == 0
    result = run("test", str(tmp_path / "shop_nodes.py"), "--cluster", str(EXAMPLE))
    assert (result.exit_code, result.exception) == (0, None)
    assert "predicate shop_nodes: 6 pods on 20 nodes" in result.stdout
    policy = ["explain", "--cluster", str(EXAMPLE), "--policy", str(tmp_path / "policy.yaml")]
    assert CliRunner().invoke(cli, policy).exit_code == 0


def test_rule_new_overwrites_no_file(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("mine")
    result = run("new", "mine", "--folder", str(tmp_path))
    assert isinstance(result.exception, ConfigurationError)
    assert [path.name for path in tmp_path.iterdir()] == ["policy.yaml"]


@pytest.mark.parametrize("name", ["class", "team-nodes", "json", "yaml", "wsgiref", "__main__", "str", "predicate"])
def test_a_name_that_could_not_be_loaded_is_refused(tmp_path: Path, name: str) -> None:
    result = run("new", name, "--folder", str(tmp_path / "rules"))
    assert isinstance(result.exception, ConfigurationError)
    assert str(result.exception).startswith(f"{name}: ")
    assert not (tmp_path / "rules").exists()


def test_json_counts_the_refusals_of_each_reason(tmp_path: Path) -> None:
    text = "@predicate\ndef only(pod, node, *, name: str):\n    return node.name == name or 'another node'\n"
    result = tried(tmp_path / "only.py", text, "--arg", "name=arm-a1", "-o", "json")
    (trial,) = json.loads(result.stdout)["rules"]
    assert trial["refused"] == {"another node": 6 * 19}


def test_a_reason_stays_one_short_line(tmp_path: Path) -> None:
    result = tried(tmp_path / "r.py", "@predicate\ndef r(pod, node):\n    return 'no\\nroom ' * 100_000\n")
    (line,) = (line for line in result.stdout.splitlines() if "refuses" in line)
    assert line.startswith("  refuses 120: no\\nroom")
    assert len(line) < 250


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        pytest.param("return pod.lables", MISSPELT, id="misspelt"),
        pytest.param("raise GeneratorExit(1)", "r.py:4: RuntimeError: the rule raised GeneratorExit(1)", id="ends"),
        pytest.param("import sys; sys.exit(1)", "r.py:4: RuntimeError: the rule called sys.exit(1)", id="exit"),
        pytest.param("return 3", NO_ANSWER, id="answer"),
    ],
)
def test_a_failing_rule_is_reported_and_sets_the_exit_status(tmp_path: Path, text: str, failure: str) -> None:
    result = tried(tmp_path / "r.py", f"@predicate\ndef r(pod, node):\n    {text}\n")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == f"  fails: {failure}"


@pytest.mark.parametrize(
    ("text", "flags", "fault"),
    [
        pytest.param("def r(:", (), "r.py:2: SyntaxError: invalid syntax", id="syntax"),
        pytest.param("import sys; sys.exit(3)", (), "r.py:2: SystemExit: 3", id="exit"),
        pytest.param("raise GeneratorExit(3)", (), "r.py:2: GeneratorExit: 3", id="ends"),
        pytest.param(
            "import no_such_module", (), "r.py:2: ModuleNotFoundError: No module named 'no_such_module'", id="import"
        ),
        pytest.param(
            "@predicate\ndef r(pod, node, a, b): pass", (), "r.py:2: TypeError: r must take (pod, node) or", id="form"
        ),
        pytest.param(
            "@predicate(woken_by={'Nod': 'Add'})\ndef r(pod, node): pass", (), "did you mean Node?", id="event"
        ),
        pytest.param("def r(pod, node): pass", (), "no function in it is decorated", id="no rule"),
        pytest.param(
            "@predicate\ndef r(pod, node, *, watts: int): pass",
            (),
            "r: watts: Field required; give it as --arg",
            id="argument",
        ),
        pytest.param(
            "@predicate\ndef r(pod, node, *, watts: int): pass",
            ("--arg", "watts=x"),
            "watts: Input should be",
            id="type",
        ),
        pytest.param("@predicate\ndef r(pod, node): pass", ("--arg", "volts=1"), "no rule in", id="unknown argument"),
        pytest.param("@predicate\ndef r(pod, node): pass", ("--arg", "volts"), "expected NAME=VALUE", id="no value"),
    ],
)
def test_wrong_input_is_refused(tmp_path: Path, text: str, flags: tuple[str, ...], fault: str) -> None:
    result = tried(tmp_path / "r.py", text, *flags)
    assert isinstance(result.exception, ConfigurationError)
    assert fault in " ".join(result.exception.faults)


def test_what_rules_print_is_no_part_of_the_answer(tmp_path: Path) -> None:
    text = "print('imported')\n@predicate\ndef printing(pod, node):\n    print('asked')\n    return True\n"
    result = tried(tmp_path / "printing.py", text, "-o", "json")
    assert json.loads(result.stdout)["rules"][0]["failure"] == ""
    assert {"imported", "asked"} <= {*result.stderr.splitlines()}
    profile = {"plugins": {"filter": {"enabled": [{"name": "printing:printing"}]}}}
    config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    (tmp_path / "policy.yaml").write_text(json.dumps({**config, "profiles": [profile]}))
    policy = ["--policy", str(tmp_path / "policy.yaml"), "-o", "json"]
    for command in (["explain"], ["explain", "shop/api-58b9c-w8x5n"], ["simulate"]):
        result = CliRunner().invoke(cli, [*command, "--cluster", str(EXAMPLE), *policy])
        assert json.loads(result.stdout)
        assert "asked" in result.stderr.splitlines()


@pytest.mark.parametrize(
    "kind",
    [
        "predicate",
        "priority",
        "pre_enqueue",
        "queue_sort",
        "post_filter",
        "reserve",
        "permit",
        "bind",
        "pre_bind",
        "post_bind",
    ],
)
def test_a_new_rule_of_each_kind_runs_and_its_policy_names_it(kind: str, tmp_path: Path) -> None:
    assert run("new", f"new_{kind}", "--kind", kind, "--folder", str(tmp_path)).exit_code == 0
    file, policy = tmp_path / f"new_{kind}.py", tmp_path / "policy.yaml"
    tried = run("test", str(file), "--cluster", str(EXAMPLE), "--policy", str(policy), "-o", "json")
    assert tried.exit_code == 0, tried.output
    (profile,) = load(policy.read_bytes(), Library(folder=str(tmp_path))).profiles
    assert next(rule.name for rule in custom_rules([profile])) == f"new_{kind}:new_{kind}"
    is_for_serve = (tmp_path / "kube-scheduler.yaml").exists()
    assert is_for_serve or profile.unsupported == ()
    assert is_for_serve == (not [each for each in profile.rules if not isinstance(each, CustomRule)])
