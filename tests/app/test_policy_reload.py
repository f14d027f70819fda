"""A policy and the rules beside it, read again while a process runs: adopted as a whole, or not at all."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from extender.app.policies import PolicyReload
from extender.config.settings import Settings
from extender.errors import ConfigurationError
from extender.plugins.users.predicate import PredicateFunction
from extender.policy.policy import Policy
from extender.runtime.ports import Telemetry

POLICY = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {filter: {enabled: [{name: "reloaded_rules:rule"}]}}}]
"""
RULE = """\
from extender import predicate
from reloaded_help import WORD

@predicate
def rule(pod, node):
    return %r
"""
HELP = "WORD = %r\n"


class Reloads(Telemetry):
    """ReloadTelemetry as a list of results."""

    def __init__(self) -> None:
        self.results: list[bool] = []

    def policy_reloaded(self, *, succeeded: bool) -> None:
        self.results.append(succeeded)


class Running:
    """A process in a folder with a policy, its rule, and a module that the rule imports."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.recorded, self.notes = folder, Reloads(), list[str | None]()
        self.refuses = False
        self.write("policy.yaml", POLICY)
        self.write("reloaded_rules.py", RULE % "one")
        self.write("reloaded_help.py", HELP % "one")
        self.reload = PolicyReload(Settings(policy=folder / "policy.yaml"), self.recorded, self.notes.append)
        self.policy = self.reload.read()

    def write(self, name: str, text: str) -> None:
        """Writes a file with the time that it has: what changes is the content."""
        path = self.folder / name
        path.write_text(text)
        os.utime(path, (1, 1))

    def look(self, times: int = 2) -> list[bool]:
        """Looks, and returns the results so far."""
        for _ in range(times):
            self.reload.look(self.adopt)
        return self.recorded.results

    def adopt(self, policy: Policy, text: str) -> None:
        assert text == (self.folder / "policy.yaml").read_text()
        if self.refuses:
            raise ConfigurationError(["extenders: restart it"])
        self.policy = policy

    @property
    def answer(self) -> tuple[object, object]:
        """What the rule in force answers, and the word that it has imported."""
        rule = self.policy.profiles[0].predicates[-1].decorated  # type: ignore[attr-defined]  # of a user
        assert isinstance(rule, PredicateFunction)
        return rule(None, None), rule.function.__globals__["WORD"]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    path, caches = list(sys.path), dict(sys.path_importer_cache)
    yield Running(tmp_path)
    sys.path[:] = path
    sys.path_importer_cache.clear()
    sys.path_importer_cache.update(caches)
    for name in ("reloaded_rules", "reloaded_help", "reloaded_late", "reloaded_hook"):
        sys.modules.pop(name, None)


def test_what_has_not_changed_is_not_read_again(running: Running) -> None:
    assert running.look(3) == []


@pytest.mark.parametrize(
    ("file", "text", "answer"),
    [
        pytest.param("reloaded_rules.py", RULE % "two", ("two", "one"), id="the rule, in the same second and size"),
        pytest.param("reloaded_help.py", HELP % "two", ("one", "two"), id="a module that it imports"),
        pytest.param("policy.yaml", f"{POLICY}percentageOfNodesToScore: 7\n", ("one", "one"), id="the policy"),
    ],
)
def test_what_has_changed_is_in_force(running: Running, file: str, text: str, answer: tuple[str, str]) -> None:
    before = running.policy
    running.write(file, text)
    assert running.look() == [True]
    assert running.answer == answer
    assert running.policy is not before
    assert running.notes == [None]
    assert running.look(3) == [True]


def test_modules_that_have_not_changed_keep_what_is_in_their_variables(running: Running) -> None:
    module = sys.modules["reloaded_rules"]
    running.write("policy.yaml", f"{POLICY}percentageOfNodesToScore: 7\n")
    running.reload.request()
    assert running.look() == [True]
    assert sys.modules["reloaded_rules"] is module


def test_another_policy_is_not_adopted_with_modules_whose_change_was_not(running: Running) -> None:
    running.write("reloaded_rules.py", "!")
    assert running.look() == [False]
    running.write("policy.yaml", f"{POLICY}percentageOfNodesToScore: 7\n")
    assert running.look() == [False, False]
    assert running.answer == ("one", "one")


def test_a_file_that_is_being_written_is_not_read(running: Running) -> None:
    for part in (20, 40, 60):
        running.write("policy.yaml", POLICY[:part])
        assert running.look(1) == []
    running.write("policy.yaml", POLICY)
    assert running.look() == []


@pytest.mark.parametrize("changes", [pytest.param(False, id="once"), pytest.param(True, id="again and again")])
def test_a_policy_that_changes_while_it_is_read_is_not_adopted_by_halves(running: Running, changes: bool) -> None:
    count, path = 0, running.folder / "policy.yaml"

    def change(*_: object) -> None:
        nonlocal count
        if count == 0 or changes:
            count += 1
            path.write_text(f"{POLICY}percentageOfNodesToScore: {count}\n")

    sys.modules["reloaded_hook"] = hook = ModuleType("reloaded_hook")
    hook.__getattr__ = change  # type: ignore[method-assign]
    before = running.policy
    running.write("reloaded_help.py", "import reloaded_hook\n\nreloaded_hook.imported\nWORD = 'two'\n")
    assert running.look() == [not changes]
    if changes:
        assert (running.policy, running.answer) == (before, ("one", "one"))
        assert running.notes == ["it changed while it was read, 5 times in a row"]
    else:
        assert running.policy.profiles[0].percentage_of_nodes_to_score == 1


def test_a_file_that_changes_and_changes_back_while_it_is_read_is_read_again(running: Running) -> None:
    late, back = running.folder / "reloaded_late.py", "WORD = 'as it is'\n"

    def change(asked: str) -> None:
        late.write_text("import reloaded_hook\nreloaded_hook.back\nWORD = 'for a moment'\n" if asked == "on" else back)
        if asked == "back":
            hook.__getattr__ = lambda _: None  # type: ignore[method-assign]

    sys.modules["reloaded_hook"] = hook = ModuleType("reloaded_hook")
    hook.__getattr__ = change  # type: ignore[method-assign]
    late.write_text(back)
    running.write("reloaded_help.py", "import reloaded_hook\nreloaded_hook.on\nfrom reloaded_late import WORD\n")
    assert running.look() == [True]
    assert running.answer == ("one", "as it is")


def test_a_mounted_config_map_changes_by_its_link(running: Running, tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    for version in ("one", "two"):
        (mount / f"..{version}").mkdir(parents=True)
        (mount / f"..{version}" / "policy.yaml").write_text(POLICY)
        (mount / f"..{version}" / "reloaded_rules.py").write_text(RULE % version)
        (mount / f"..{version}" / "reloaded_help.py").write_text(HELP % version)
    (mount / "..data").symlink_to("..one")
    for name in ("policy.yaml", "reloaded_rules.py", "reloaded_help.py"):
        (mount / name).symlink_to(f"..data/{name}")
    running.folder = mount
    running.reload = PolicyReload(Settings(policy=mount / "policy.yaml"), running.recorded)
    sys.path.remove(str(tmp_path))  # which has modules of these names too
    for name in ("reloaded_rules", "reloaded_help"):
        del sys.modules[name]
    running.policy = running.reload.read()
    assert running.answer == ("one", "one")
    (mount / "..new").symlink_to("..two")
    (mount / "..new").rename(mount / "..data")
    assert running.look() == [True]
    assert running.answer == ("two", "two")


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        pytest.param("policy.yaml", "kind: {", "the document: line 2: ", id="no YAML"),
        pytest.param(
            "policy.yaml",
            POLICY.replace("filter", "fliter"),
            "profiles[0].plugins.fliter: unknown field (did you mean filter?)",
            id="a field that there is not",
        ),
        pytest.param(
            "reloaded_rules.py",
            RULE.replace("def", "dfe"),
            "profiles[0].plugins.filter.enabled[0].name: reloaded_rules:rule cannot be imported: "
            "reloaded_rules.py:5: SyntaxError: invalid syntax",
            id="no Python",
        ),
        pytest.param(
            "reloaded_help.py",
            "WORD = 1 / 0",
            "profiles[0].plugins.filter.enabled[0].name: reloaded_rules:rule cannot be imported: "
            "reloaded_help.py:1: ZeroDivisionError: division by zero",
            id="an error in what is imported",
        ),
        pytest.param(
            "reloaded_rules.py",
            "import sys\n\nsys.exit(3)\n",
            "profiles[0].plugins.filter.enabled[0].name: reloaded_rules:rule cannot be imported: "
            "reloaded_rules.py:3: SystemExit: 3",
            id="sys.exit",
        ),
        pytest.param(
            "reloaded_rules.py",
            "class Own(BaseException): ...\n\nraise Own(3)\n",
            "profiles[0].plugins.filter.enabled[0].name: reloaded_rules:rule cannot be imported: "
            "reloaded_rules.py:3: Own: 3",
            id="an error of its own base",
        ),
        pytest.param("policy.yaml", None, "No such file or directory", id="no file"),
    ],
)
def test_a_policy_that_does_not_load_is_reported_in_one_line_and_the_rules_stay(
    running: Running, caplog: pytest.LogCaptureFixture, file: str, text: str | None, fault: str
) -> None:
    before, module = running.policy, sys.modules["reloaded_rules"]
    if text is None:
        (running.folder / file).unlink()
    else:
        running.write(file, text)
    with caplog.at_level(logging.ERROR, "extender.app.policies"):
        assert running.look(5) == [False]
    [record] = caplog.records
    message = record.getMessage()
    assert message.startswith("policy not adopted, the earlier one stays in force policy=")
    assert fault in message
    assert "\n" not in message
    assert not record.exc_info
    assert str(running.notes[0]).startswith(fault)
    assert (running.policy, running.answer, sys.modules["reloaded_rules"]) == (before, ("one", "one"), module)


def test_what_is_mended_is_in_force(running: Running) -> None:
    running.write("reloaded_rules.py", "!")
    assert running.look() == [False]
    running.write("reloaded_rules.py", RULE % "two")
    assert running.look() == [False, True]
    assert running.answer == ("two", "one")


def test_what_a_running_process_cannot_adopt_leaves_the_modules_before(running: Running) -> None:
    module = sys.modules["reloaded_rules"]
    running.refuses = True
    running.write("reloaded_rules.py", RULE % "two")
    assert running.look(3) == [False]
    assert running.notes == ["extenders: restart it"]
    assert sys.modules["reloaded_rules"] is module


def test_it_is_read_again_at_once_on_request(running: Running) -> None:
    running.write("reloaded_rules.py", RULE % "two")
    running.reload.request()
    assert running.look(1) == [True]
    assert running.answer == ("two", "one")
    running.reload.request()
    assert running.look(3) == [True, True]
