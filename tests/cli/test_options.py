"""Every command with every option that kubectl's users know: it does what they expect, or is refused with a reason."""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import yaml

from extender.app.observation import PastDecisions
from extender.cli.main import main
from extender.extender_v1.messages import ExtenderBindingArgs, ExtenderBindingResult
from extender.runtime.clock import ManualClock
from extender.web.answers import Answer
from extender.web.app import PageServer, PrivatePages
from tests.builders import make_node, make_pod
from tests.cli.test_status import PICTURE, view

ROOT = Path(__file__).parents[2]
OBJECTS = [
    make_node("n").capacity(cpu="4").obj(),
    make_pod("web-0", "shop").label(app="web").req(cpu="9").obj(),
    make_pod("db-0", "shop").label(app="db").req(cpu="8").obj(),
    make_pod("job-0", "ml").label(app="web").req(cpu="7").obj(),
]
QUEUE = msgspec.structs.replace(
    PICTURE,
    active=[
        view("shop", "web-0", labels={"app": "web"}, since_seconds=9.0),
        view("shop", "db-0", labels={"app": "db"}, since_seconds=8.0),
        view("ml", "job-0", labels={"app": "web"}, since_seconds=7.0),
    ],
    unschedulable=[],
    assumed=[],
)


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended."""

    status: int
    stdout: str
    stderr: str


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a process that has a queue and remembers decisions; the files that commands read are beside."""
    (tmp_path / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": OBJECTS}))
    (tmp_path / "new.json").write_text(json.dumps(make_pod("new", "shop").req(cpu="1").obj()))
    (tmp_path / "policy.json").write_text(json.dumps({"apiVersion": "v1", "kind": "Policy"}))
    (tmp_path / "recording.jsonl.gz").symlink_to(ROOT / "tests/recordings/served.jsonl.gz")
    (tmp_path / "groups.yaml").symlink_to(ROOT / "examples/pod-groups.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "missing.kubeconfig")
    past = PastDecisions(ManualClock(), 1 << 20, 3600.0)
    for namespace, name in (("shop", "web-0"), ("shop", "db-0"), ("ml", "job-0")):
        past.called("bind", "decided", ExtenderBindingArgs(name, namespace, name, "n"), ExtenderBindingResult(""))
    queue = Answer(200, msgspec.json.encode(QUEUE))
    server = PageServer("127.0.0.1", 0, PrivatePages({"/debug/pods": lambda *_: queue, "/debug/decisions": past.page}))
    server.start()
    yield f"http://127.0.0.1:{server.port}"
    server.stop()


def run(
    command: str, address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, given: bytes = b""
) -> Ran:
    """Runs the command in this process. HERE in it is the address of the running process."""
    monkeypatch.setattr(sys, "argv", ["extender", *shlex.split(command.replace("HERE", address))])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    return Ran(int(ended.value.code or 0), printed.out, printed.err)


NAMES = [
    # the list of pending pods
    ("explain --cluster c.json", "PendingPods", "ml/job-0 shop/db-0 shop/web-0"),
    ("explain --cluster c.json -A", "PendingPods", "ml/job-0 shop/db-0 shop/web-0"),
    ("explain --cluster c.json -n shop", "PendingPods", "shop/db-0 shop/web-0"),
    ("explain --cluster c.json -n shop -A", "PendingPods", "ml/job-0 shop/db-0 shop/web-0"),
    ("explain --cluster c.json -l app=web", "PendingPods", "ml/job-0 shop/web-0"),
    ("explain --cluster c.json -n shop -l app=web", "PendingPods", "shop/web-0"),
    ("explain --cluster c.json --sort-by .name", "PendingPods", "shop/db-0 ml/job-0 shop/web-0"),
    ("explain --cluster c.json -n empty", "PendingPods", ""),
    # one pod, a file, a group
    ("explain shop/web-0 --cluster c.json", "Explanation", "shop/web-0"),
    ("explain web-0 -n shop --cluster c.json", "Explanation", "shop/web-0"),
    ("explain pod/web-0 -n shop --cluster c.json", "Explanation", "shop/web-0"),
    ("explain pod web-0 -n shop --cluster c.json", "Explanation", "shop/web-0"),
    ("explain shop/web-0 --node n --cluster c.json", "Explanation", "shop/web-0"),
    ("explain shop/web-0 --nodes --no-changes --cluster c.json", "Explanation", "shop/web-0"),
    ("explain -f new.json --cluster c.json", "Explanation", "shop/new"),
    ("explain podgroup/train -n ml --cluster groups.yaml", "GroupExplanation", "ml/podgroup/train"),
    ("explain podgroup train -n ml --cluster groups.yaml", "GroupExplanation", "ml/podgroup/train"),
    # the decisions of a running process
    ("explain --from HERE", "Decisions", "shop/web-0 shop/db-0 ml/job-0"),
    ("explain --from HERE -A", "Decisions", "shop/web-0 shop/db-0 ml/job-0"),
    ("explain --from HERE -n shop", "Decisions", "shop/web-0 shop/db-0"),
    ("explain --from HERE -n shop -A", "Decisions", "shop/web-0 shop/db-0 ml/job-0"),
    ("explain --from HERE -n shop --sort-by .pod", "Decisions", "shop/db-0 shop/web-0"),
    ("explain --from HERE -n empty", "Decisions", ""),
    ("explain shop/web-0 --from HERE", "Decisions", "shop/web-0"),
    ("explain web-0 -n shop --from HERE", "Decisions", "shop/web-0"),
    ("explain pod/web-0 -n shop --from HERE", "Decisions", "shop/web-0"),
    # the queue of a running scheduler
    ("status --server HERE", "Queue", "ml/job-0 shop/db-0 shop/web-0"),
    ("status --server HERE -A", "Queue", "ml/job-0 shop/db-0 shop/web-0"),
    ("status --server HERE -n shop", "Queue", "shop/db-0 shop/web-0"),
    ("status --server HERE -n shop -A", "Queue", "ml/job-0 shop/db-0 shop/web-0"),
    ("status --server HERE -l app=web", "Queue", "ml/job-0 shop/web-0"),
    ("status --server HERE --sort-by .sinceSeconds", "Queue", "ml/job-0 shop/db-0 shop/web-0"),
    ("status --server HERE web-0", "Queue", "shop/web-0"),
    ("status --server HERE shop/web-0 ml/job-0", "Queue", "ml/job-0 shop/web-0"),
    ("status --server HERE pod/web-0", "Queue", "shop/web-0"),
    ("status --server HERE pod/web-0 -n ml", "Queue", ""),
    # commands that answer about a whole cluster: the pods that are pending, placed, or end elsewhere
    ("simulate --cluster c.json", "Simulation", "ml/job-0 shop/db-0 shop/web-0"),
    ("simulate --cluster c.json -n shop --delete web-0", "Simulation", "ml/job-0 shop/db-0"),
    ("capacity --cluster c.json -f new.json", "Capacity", "shop/new"),
    ("plan --cluster c.json -f new.json", "Plan", ""),
    ("compare --cluster c.json --policy policy.json", "Comparison", ""),
    ("reference log", "Reference", None),
    ("replay recording.jsonl.gz --steps", "Replay", None),
    ("upgrade-check recording.jsonl.gz --to 1.37", "Replay", ""),
]
"""A command, the kind that it prints, and the names that `-o name` prints; None: some names."""


@pytest.mark.parametrize(("command", "kind", "names"), NAMES)
def test_a_command_prints_the_same_pods_in_every_format(
    command: str,
    kind: str,
    names: str | None,
    address: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = {
        form: run(f"{command} -o {form}", address, capsys, monkeypatch) for form in ("table", "wide", "json", "yaml")
    }
    assert json.loads(ran["json"].stdout) == yaml.safe_load(ran["yaml"].stdout)
    assert json.loads(ran["json"].stdout)["kind"] == kind
    named = run(f"{command} -o name", address, capsys, monkeypatch)
    assert named.stdout.split() == (names.split() if names is not None else named.stdout.split() or ["a name"])
    assert run(f"{command} -o jsonpath={{.kind}}", address, capsys, monkeypatch).stdout == kind
    assert all(name.rpartition("/")[2] in ran["wide"].stdout for name in (names or "").split())
    assert all(ran[form].stdout or ran[form].stderr for form in ("table", "wide"))
    assert {each.status for each in ran.values()} == {named.status}


REFUSED = [
    ("explain shop/web-0 -A --cluster c.json", "--all-namespaces: only for the list of pending pods"),
    ("explain shop/web-0 -l app=web --cluster c.json", "--selector: only for the list of pending pods"),
    ("explain -f new.json --sort-by .name --cluster c.json", "--sort-by: only for the list of pending pods"),
    ("explain podgroup/train -n ml --nodes --cluster groups.yaml", "--nodes: only for one pod, but podgroup/train is"),
    ("explain podgroup/train -n ml --sort-by .name --cluster groups.yaml", "--sort-by: only for the list"),
    ("explain --no-changes --cluster c.json", "--changes: these options need a pod"),
    (
        "explain --sort-by .since-when --cluster c.json",
        "--sort-by: no such key; the keys are .namespace, .name,",
    ),
    (
        "explain shop/web-0 --node n -o html --cluster c.json",
        "--node: cannot be used with -o html, which always shows every node",
    ),
    ("explain --from HERE -l app=web", "--selector: --from and --in-cluster show remembered decisions"),
    ("explain --from HERE --policy policy.json", "--policy: --from and --in-cluster show remembered decisions"),
    ("explain --from HERE --context c", "--context: --from takes an address"),
    ("explain --from HERE --in-cluster ns/extender", "give one process"),
    ("explain --from HERE --sort-by .name", "--sort-by: no such key; the keys are .pod, .at, .what"),
    ("explain shop/web-0 --from HERE --sort-by .at", "--sort-by: cannot be used with POD"),
    ("explain shop/web-0 --from HERE -A", "--all-namespaces: cannot be used with POD"),
    ("explain podgroup/train --from HERE", "decisions are about pods, but podgroup/train is a group"),
    ("explain --batch -n shop", "--namespace: --batch reads"),
    ("explain --batch -o yaml", "--batch prints JSON"),
    ("explain --batch shop/web-0", "--batch reads"),
    ("status --server HERE --context c", "--context: these options need --in-cluster"),
    ("status --server HERE --in-cluster ns/extender", "--server: give one scheduler"),
    ("status --server HERE --sort-by .since", "--sort-by: no such key; the keys are .namespace, .name, .tier"),
    ("status --server HERE a/b/c", "a/b/c: expected NAME, NAMESPACE/NAME or pod/NAME"),
    (
        "snapshot --cluster c.json -n shop -o s.json",
        "--namespace: cannot be used with --cluster",
    ),
    ("snapshot --cluster c.json -o yaml", "-o yaml: expected the file to write"),
    ("translate new.json --redact-key new.json --cluster c.json -n shop", "--namespace: cannot be used with --cluster"),
    ("view --cluster c.json -n shop", "--namespace: cannot be used with --cluster"),
    ("view --recording recording.jsonl.gz -n shop", "--namespace: cannot be used with --recording"),
    ("replay recording.jsonl.gz --steps --policy policy.json", "--policy: cannot be used with --steps"),
    ("certs pki --secrets ns -o json", "--secrets prints YAML"),
    (
        "doctor --url http://127.0.0.1:1/scheduler --context c",
        "no cluster: missing.kubeconfig does not exist",
    ),
    ("doctor --url http://127.0.0.1:1/scheduler --mode schedule --preempt-for-rules", "--preempt-for-rules: an option"),
]


@pytest.mark.parametrize(("command", "message"), REFUSED)
def test_an_option_that_would_be_ignored_is_refused(
    command: str,
    message: str,
    address: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = run(command, address, capsys, monkeypatch)
    assert (ran.status, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"error: {message}")


def test_an_option_with_its_default_value_is_accepted(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = "explain --no-nodes --changes --no-batch --cluster c.json -o name"
    assert run(command, address, capsys, monkeypatch).status == 0
