"""The commands `extender rule new` and `extender rule test`: write a rule, and try it on a cluster."""

from __future__ import annotations

import builtins
import sys
from collections import Counter
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import click
import yaml

from extender.cli.document_kinds import DocumentKind, headed
from extender.cli.output import ListingGroup, Output, output_option, say, show
from extender.cli.process_commands import SCHEDULER_CONFIGURATION
from extender.cli.source_options import Source, print_notes, source_options
from extender.errors import ConfigurationError
from extender.runtime.text import counted, printable

if TYPE_CHECKING:
    from extender.offline.rule_trial import RuleTrial

_FILE = click.Path(path_type=Path, dir_okay=False)
_LONGEST_REASON = 200
_PRIORITY = '''@priority
def {name}(pod: Pod, node: Node, *, label: str = "example.com/team") -> int:
    """Prefers nodes with the pod's own value. Returns a score from 0 to 100, higher is better."""
    return 100 if pod.labels.get(label) == node.labels.get(label) else 0
'''
_PREDICATE = '''@predicate
def {name}(pod: Pod, node: Node, *, label: str = "example.com/team") -> str | None:
    """Keeps pods with the label on nodes with the same value. Returns why a node is refused, None if it is not."""
    value = pod.labels.get(label)
    if value is None or node.labels.get(label) == value:
        return None
    return "node(s) belonged to another team"


''' + _PRIORITY.replace("{name}", "prefer_{name}")
_IN_TREE = """
    # Beside `extender serve`, kube-scheduler runs the in-tree plugins. For other commands, remove the next line.
    multiPoint: {disabled: [{name: "*"}]}"""
_PER_NODE = ("predicate", "priority", "device_priority")
_KINDS: Mapping[str, tuple[str, str, str]] = {
    "predicate": ("Node, Pod, predicate, priority", "filter", _PREDICATE),
    "priority": ("Node, Pod, priority", "score", _PRIORITY),
    "pre_enqueue": (
        "Pod, pre_enqueue",
        "preEnqueue",
        '''@pre_enqueue(woken_by={{"TargetPod": "UpdatePodLabel"}})
def {name}(pod: Pod, *, label: str = "example.com/team") -> str | None:
    """Holds back pods without the label. Returns why a pod has to wait, None if it may be scheduled."""
    return None if label in pod.labels else "waiting for a label"
''',
    ),
    "queue_sort": (
        "Pod, queue_sort",
        "queueSort",
        '''@queue_sort
def {name}(pod: Pod, *, label: str = "example.com/team") -> int:
    """Tries pods with the label first. Returns a number, smaller first; equal pods are sorted by priority."""
    return 0 if label in pod.labels else 1
''',
    ),
    "post_filter": (
        "Nominate, Pod, post_filter",
        "postFilter",
        '''@post_filter
def {name}(pod: Pod, refused: Mapping[str, str], *, label: str = "example.com/team") -> Nominate | str | None:
    """Proposes a node for a pod that fits on none. Returns Nominate(node), a reason why not, or None."""
    return None if label in pod.labels else "no node will have room for pods without a team"
''',
    ),
    "reserve": (
        "Node, Pod, reserve",
        "reserve",
        '''@reserve
def {name}(pod: Pod, node: Node, *, label: str = "example.com/team") -> str | None:
    """Reserves what the pod needs on its node. Returns why it cannot be bound now, None if it can."""
    return None if label in pod.labels else "the pod has no team"


@{name}.unreserve
def give_back(pod: Pod, node: Node) -> None:
    """Undoes the reservation of a pod that was not bound."""
''',
    ),
    "permit": (
        "Node, Pod, Wait, permit",
        "permit",
        '''@permit
def {name}(pod: Pod, node: Node, *, label: str = "example.com/team") -> Wait | str | None:
    """Lets the pod be bound, or wait. Returns Wait(seconds), a reason why not, or None."""
    return None if label in pod.labels else Wait(30)
''',
    ),
    "bind": (
        "NodeInfo, Pod, bind",
        "bind",
        '''@bind
def {name}(pod: Pod, node: NodeInfo, *, label: str = "example.com/team") -> dict[str, str] | str | None:
    """Chooses annotations that the pod gets in its Binding. Returns a dict, a reason why not, or None."""
    taken = {{other.annotations.get("example.com/slot") for other in node.pods}}
    free = [str(slot) for slot in range(8) if str(slot) not in taken]
    return {{"example.com/slot": free[0]}} if free else "no slot is free"
''',
    ),
    "pre_bind": (
        "Node, Pod, pre_bind",
        "preBind",
        '''@pre_bind
def {name}(pod: Pod, node: Node, *, label: str = "example.com/team") -> str | None:
    """Prepares the node for the pod. Returns why it cannot be bound now, None if it can."""
    return None if label in pod.labels else "the pod has no team"
''',
    ),
    "post_bind": (
        "Handle, Node, Pod, post_bind",
        "postBind",
        '''@post_bind
def {name}(pod: Pod, node: Node, *, handle: Handle, label: str = "example.com/team") -> None:
    """Runs after the pod was bound."""
    handle.count(f"bound_{{pod.labels.get(label, 'without a team')}}")
''',
    ),
}
"""Kind -> the names that the new file imports, the extension point in the policy, and the code of the rule."""
_FILE_TEXT = '''"""{rules} for `extender {command} --policy policy.yaml`; `extender rule test {name}.py` tries {it}."""

{mapping}from extender import {imports}


{code}'''
_POLICY = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: {scheduler}
  plugins:{in_tree}
    {point}:
      enabled: [{{name: "{name}:{name}"}}]{more}
  pluginConfig:
  - name: "{name}:{name}"
    args: {{label: example.com/team}}
"""
_MORE = {
    "predicate": '\n    score:\n      enabled: [{{name: "{name}:prefer_{name}", weight: 5}}]',
    "queue_sort": "\n      disabled: [{{name: PrioritySort}}]",
}
"""Kind -> what the policy enables or disables besides the rule."""
_IN_SERVE = ("predicate", "priority", "reserve", "permit", "bind", "pre_bind", "post_bind")
# The new file uses these names itself, so no rule may have one of them.
_TAKEN = {
    *dir(builtins),
    *", ".join(("Mapping", *(imports for imports, _, _ in _KINDS.values()))).split(", "),
}


@click.group(cls=ListingGroup)
def rule() -> None:
    """Write a scheduling rule of your own, and try it on a cluster before it places any pod."""


@rule.command()
@click.argument("name")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="directory to write to  [default: the current one]",
)
@click.option(
    "--kind",
    type=click.Choice(tuple(_KINDS)),
    default="predicate",
    show_default=True,
    help="kind of rule; predicate also writes a priority",
)
def new(name: str, folder: Path, kind: str) -> None:
    """Write NAME.py with a rule, and policy.yaml that enables it.

    For a rule of `extender serve`, it also writes kube-scheduler.yaml, the configuration of a kube-scheduler for it.

    \b
    Write one, try it, see what it says about a pod, and serve it to kube-scheduler:
      extender rule new team_nodes
      extender rule test team_nodes.py --cluster cluster.yaml
      extender explain shop/web-0 --cluster cluster.yaml --policy policy.yaml
      extender serve --policy policy.yaml --kubeconfig ~/.kube/config

    Exit status: 0 if the files are written, 2 if one exists already or NAME cannot be used, 1 for a failure.
    """
    if not name.isidentifier() or iskeyword(name):
        raise ConfigurationError([f"{name}: expected a Python identifier, such as team_nodes"])
    rule_text, policy_text = _texts(name, kind)
    texts = {folder / f"{name}.py": rule_text, folder / "policy.yaml": policy_text}
    if kind in _IN_SERVE:
        texts[folder / "kube-scheduler.yaml"] = SCHEDULER_CONFIGURATION.format(address="127.0.0.1:8888")
    existing = [str(path) for path in texts if path.exists()]
    if existing:
        raise ConfigurationError([f"{' and '.join(existing)}: already exists; choose another --folder"])
    # Otherwise `import NAME` would import the existing module instead of the new file.
    if name in _TAKEN or name in sys.modules or find_spec(name):
        raise ConfigurationError([f"{name}: Python or an installed module has this name; choose another"])
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text)
        click.echo(f"wrote {path}")


def _texts(name: str, kind: str) -> tuple[str, str]:
    """Returns the text of a Python file with a rule of this kind, and the text of a policy that enables the rule."""
    imports, point, code = _KINDS[kind]
    command, scheduler = ("serve", "default-scheduler") if kind in _IN_SERVE else ("schedule", "extender")
    mapping = "from collections.abc import Mapping\n\n" if kind == "post_filter" else ""
    rules, it = ("Rules", "them") if kind == "predicate" else ("A rule", "it")
    in_tree, more = _IN_TREE if kind in _IN_SERVE else "", _MORE.get(kind, "").format(name=name)
    code = code.format(name=name)
    return (
        _FILE_TEXT.format(rules=rules, it=it, command=command, name=name, mapping=mapping, imports=imports, code=code),
        _POLICY.format(name=name, point=point, scheduler=scheduler, more=more, in_tree=in_tree),
    )


@rule.command(name="test")
@click.argument("file", type=_FILE)
@click.option("--arg", "arguments", multiple=True, metavar="NAME=VALUE", help="an argument of the rules; repeatable")
@output_option()
@partial(source_options, whole=True)
def test(source: Source, file: Path, arguments: tuple[str, ...], output: Output) -> None:
    """Run the rules in FILE on a cluster, and show what they refuse, what they prefer, and how long they take.

    The rules are run for every pending pod, or for all pods if none is pending (at most 200), on every node.

    \b
      extender rule test rules.py --cluster cluster.yaml
      extender rule test rules.py --arg label=team --arg 'zones=[a, b]'

    Exit status: 0 if no rule fails; 1 if a rule fails (the output has the failing line); 2 for wrong usage or input.
    """
    from extender.offline.rule_trial import rules_in, try_rule

    values = dict(map(_argument, arguments))
    rules = rules_in(file)
    names = {name for each in rules.values() for name in each.arguments.model_fields}
    if unknown := sorted(values.keys() - names):
        raise ConfigurationError([f"--arg {name}: no rule in {file} has this argument" for name in unknown])
    state, unread = source.load()
    trials = [
        try_rule(name, each, {k: v for k, v in values.items() if k in each.arguments.model_fields}, state)
        for name, each in rules.items()
    ]
    print_notes(unread)
    if output.is_text:
        say("\n\n".join(map(_text, trials)))
    else:
        show(headed(DocumentKind.RULE_TRIALS, {"rules": [trial.to_dict() for trial in trials]}), output)
    sys.exit(int(any(trial.failure for trial in trials)))


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigurationError([f"--arg {text}: expected NAME=VALUE"])
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError:
        raise ConfigurationError([f"--arg {text}: the value is not valid YAML"]) from None


def _text(trial: RuleTrial) -> str:
    head = f"{trial.kind} {trial.name}: {counted(trial.pods, 'pod')} on {counted(trial.nodes, 'node')}"
    if trial.failure:
        return f"{head}\n  fails: {trial.failure}"
    if trial.kind not in _PER_NODE:
        head = f"{trial.kind} {trial.name}: {counted(trial.pods, 'pod')}"
    lines = [f"{head}, {trial.micros_per_node:.1f} us per node" if trial.kind in _PER_NODE else head]
    if trial.kind == "predicate":
        pairs = trial.pods * trial.nodes
        passed = pairs - sum(trial.refused.values())
        lines.append(f"  passes {passed} of {pairs} pairs of a pod and a node")
        lines += [
            f"  refuses {count}: {shorten(printable(reason), _LONGEST_REASON)}"
            for reason, count in Counter(trial.refused).most_common()
        ]
    elif trial.kind not in _PER_NODE:
        counts = [
            *Counter(trial.answers).most_common(),
            *((f"refuses: {each}", n) for each, n in Counter(trial.refused).most_common()),
        ]
        lines += [f"  {shorten(printable(text), _LONGEST_REASON)}: {counted(count, 'pod')}" for text, count in counts]
    elif trial.scores is not None:
        lowest, median, highest = trial.scores
        lines.append(f"  scores from {lowest} to {highest}, median {median}")
        lines.append(f"  prefers some nodes for {trial.differs} of {counted(trial.pods, 'pod')}")
    return "\n".join(lines)
