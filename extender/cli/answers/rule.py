"""The commands `extender rule new` and `extender rule test`: rules of one's own, begun and tried."""

from __future__ import annotations

import builtins
import sys
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import click
import yaml

from extender.cli.answers.sources import Source, say, show, source_options
from extender.errors import ConfigurationError
from extender.runtime.text import printable

if TYPE_CHECKING:
    from extender.offline.rule_trial import RuleTrial

_FILE = click.Path(path_type=Path, dir_okay=False)
_WIDEST = 200  # letters of a reason
_SKELETON = '''"""Rules for `extender serve --policy policy.yaml`; `extender rule test {name}.py` tries them."""

from extender import Node, Pod, predicate, priority


@predicate
def {name}(pod: Pod, node: Node, *, label: str = "example.com/team") -> str | None:
    """Keeps a pod with the label on nodes of the same value. Returns why a node cannot take the pod, None if it can."""
    wanted = pod.labels.get(label)
    if wanted is None or node.labels.get(label) == wanted:
        return None
    return "node(s) were another team's"


@priority
def prefer_{name}(pod: Pod, node: Node, *, label: str = "example.com/team") -> int:
    """Prefers nodes of the pod's own value. Returns 0 to 100, more is better."""
    return 100 if pod.labels.get(label) == node.labels.get(label) else 0
'''
_POLICY = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    filter:
      enabled: [{{name: "{name}:{name}"}}]
    score:
      enabled: [{{name: "{name}:prefer_{name}", weight: 5}}]
  pluginConfig:
  - name: "{name}:{name}"
    args: {{label: example.com/team}}
"""
_TAKEN = {*dir(builtins), "Node", "Pod", "predicate", "priority"}  # the skeleton means something else by them


@click.group()
def rule() -> None:
    """Begin a rule of your own, and try it on a cluster before anything is placed by it."""


@rule.command()
@click.argument("name")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="where to write  [default: here]"
)
def new(name: str, folder: Path) -> None:
    """Write NAME.py with a predicate and a priority, and policy.yaml that names them.

    \b
      extender rule new team_nodes
      extender rule test team_nodes.py --cluster cluster.yaml
      extender serve --policy policy.yaml --kubeconfig ~/.kube/config
    """
    if not name.isidentifier() or iskeyword(name):
        raise ConfigurationError([f"{name}: want a name of Python, like team_nodes"])
    if name in _TAKEN or name in sys.modules or find_spec(name):  # which would be found in its place
        raise ConfigurationError([f"{name}: taken by Python or an installed module, want another, like team_nodes"])
    texts = {folder / f"{name}.py": _SKELETON, folder / "policy.yaml": _POLICY}
    there = [str(path) for path in texts if path.exists()]
    if there:
        raise ConfigurationError([f"{', '.join(there)}: there already; nothing was written"])
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text.format(name=name))
        click.echo(f"wrote {path}")


@rule.command(name="test")
@click.argument("file", type=_FILE)
@click.option("--arg", "arguments", multiple=True, metavar="NAME=VALUE", help="an argument of the rules; repeatable")
@click.option("-o", "--output", type=click.Choice(("text", "json", "yaml")), default="text", show_default=True)
@source_options
def test(source: Source, file: Path, arguments: tuple[str, ...], output: str) -> None:
    """Try the rules in FILE on a cluster: what they refuse, what they prefer, and what they cost.

    They are asked about every pod that waits, or if none does about all pods (200 at most), on every node.

    \b
      extender rule test rules.py --cluster cluster.yaml
      extender rule test rules.py --arg label=team --arg 'zones=[a, b]'

    Exit status: 0; 1 where a rule fails, with its line; 2 for wrong usage or input.
    """
    from extender.offline.rule_trial import rules_in, try_rule

    given = dict(map(_argument, arguments))
    rules = rules_in(file)
    known = {name for each in rules.values() for name in each.arguments.model_fields}
    if unknown := sorted(given.keys() - known):
        raise ConfigurationError([f"--arg {name}: no rule in {file} takes it" for name in unknown])
    state, _ = source.load()
    trials = [
        try_rule(name, each, {k: v for k, v in given.items() if k in each.arguments.model_fields}, state)
        for name, each in rules.items()
    ]
    if output == "text":
        say("\n\n".join(map(_text, trials)))
    else:
        show({"rules": [trial.to_dict() for trial in trials]}, output)
    sys.exit(int(any(trial.failure for trial in trials)))


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigurationError([f"--arg {text}: want NAME=VALUE"])
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError:
        raise ConfigurationError([f"--arg {text}: the value is no YAML"]) from None


def _text(trial: RuleTrial) -> str:
    head = f"{trial.kind} {trial.name}: {trial.pods} pods on {trial.nodes} nodes"
    if trial.failure:
        return f"{head}\n  fails: {trial.failure}"
    lines = [f"{head}, {trial.micros_per_node:.1f} us a node"]
    if trial.kind == "predicate":
        pairs = trial.pods * trial.nodes
        passed = pairs - sum(trial.refused.values())
        lines.append(f"  lets {passed} of {pairs} pairs of a pod and a node pass")
        lines += [
            f"  refuses {count}: {shorten(printable(reason), _WIDEST)}" for reason, count in trial.refused.most_common()
        ]
    elif trial.scores is not None:
        low, middle, high = trial.scores
        lines.append(f"  scores {low} to {high}, half of them up to {middle}; nodes differ for {trial.differs} pods")
    return "\n".join(lines)
