"""The commands that run a process: serve, schedule and demo."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from extender.config.settings import OPTIONS, Option
from extender.config.sources import load
from extender.errors import ConfigurationError

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path)
_PROVIDER = click.Choice(OPTIONS["provider"].choices)
_RATE = click.FloatRange(min=0, min_open=True)
EXAMPLE = Path(__file__).parents[1] / "offline" / "example.yaml"
POD, PENDING = "shop/api-58b9c-w8x5n", "ml/recommend-7f6d-v4nzs"
CALL = "{extender} demo {verb} | curl -s {address}/scheduler/{verb} -H 'Content-Type: application/json' -d @-"


def settings_options(command: _Command) -> _Command:
    """Adds --config and a flag for every setting to a command, which gets the values as keyword arguments."""
    for option in reversed(tuple(OPTIONS.values())):
        command = _flag(option)(command)
    config = click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        envvar="EXTENDER_CONFIG",
        help="settings file (YAML)",
    )
    return config(command)


def _flag(option: Option) -> Callable[[_Command], _Command]:
    shown = ", ".join(option.default) if option.many else option.default
    default = "" if shown in (None, "", False) else f"  [default: {shown}]"
    # --leader-elect alone means true; --leader-elect=false overrides a true in a file or variable.
    switch: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if option.annotation is bool else {}
    return click.option(
        option.flag,
        option.name,
        type=click.Choice(option.choices) if option.choices else str,
        multiple=option.many,
        default=() if option.many else None,
        metavar=None if option.choices else "TEXT" if option.many else _metavar(option),
        help=option.description + default,
        **switch,
    )


def _metavar(option: Option) -> str:
    words = {"bind": "HOST:PORT", "cluster": "PATH", "kubeconfig": "FILE"}
    return words.get(option.name) or ("SECONDS" if option.name.endswith("_seconds") else "VALUE")


@click.command()
@settings_options
def serve(config: Path | None, **flags: Any) -> None:
    """Answer kube-scheduler's filter, prioritize, preempt and bind calls.

    \b
    Against a cluster, for a scheduler on the same machine:
      extender serve --kubeconfig ~/.kube/config --bind 127.0.0.1:8888
    On objects from a file (as `kubectl get nodes,pods -A -o yaml` prints them), no cluster needed:
      extender serve --cluster cluster.yaml --log-format text

    Every option may also stand in the file of --config (--body-limit as bodyLimit) or in the environment
    (EXTENDER_BODY_LIMIT); options win over the environment, the environment over the file.
    """
    settings = load(config, os.environ, {name: value for name, value in flags.items() if value not in (None, ())})
    from extender.app.serve import serve as run  # --help, and a fault in the settings, need not wait for NumPy

    run(settings)


@click.command()
@click.option("--config", type=_FILE, metavar="FILE", envvar="EXTENDER_CONFIG", help="settings file (YAML)")
@click.option("--kubeconfig", type=_FILE, metavar="FILE", help="kubeconfig; without it the in-cluster service account")
@click.option("--scheduler-name", metavar="NAME", help="schedulerName of the pods to place  [default: the policy's]")
@click.option("--policy", type=_FILE, metavar="FILE", help="rules to decide by; also configmap:NAMESPACE/NAME")
@click.option(
    "--policy-reload-seconds",
    metavar="SECONDS",
    help="between two looks whether the policy has changed; 0: only on SIGHUP  [default: 5]",
)
@click.option("--provider", type=_PROVIDER, help="the rules where there is no policy  [default: DefaultProvider]")
@click.option("--feature-gates", metavar="A=true,B=false", help="feature gates of the kube-scheduler to match")
@click.option("--leader-elect/--no-leader-elect", default=True, show_default=True, help="schedule only as the leader")
@click.option("--lease-namespace", default="kube-system", show_default=True, help="namespace of the lease")
@click.option("--lease-name", default="extender-scheduler", show_default=True, help="name of the lease")
@click.option("--bind", "address", default="127.0.0.1:8889", show_default=True, help="HOST:PORT of probes and metrics")
@click.option("--bind-rate", type=_RATE, default=5000.0, show_default=True, help="most bindings a second")
@click.option("--status-rate", type=_RATE, default=100.0, show_default=True, help="most pod status writes a second")
@click.option(
    "--event-rate",
    type=_RATE,
    default=200.0,
    show_default=True,
    help="most events a second; a tenth while pods queue",
)
@click.option(
    "--pod-max-in-unschedulable-pods-seconds",
    "max_unschedulable_seconds",
    type=_RATE,
    default=300.0,
    show_default=True,
    help="until a pod is tried again that no event has helped (kube-scheduler's podMaxInUnschedulablePodsDuration)",
)
@click.option("--seed", type=int, help="choose between nodes of the same score by this seed")
@click.option(
    "--cpus",
    type=click.Choice(("one", "any")),
    default="one",
    show_default=True,
    help="keep all threads to one CPU, the quietest, or run them on any, for users' rules with threads of their own",
)
@click.option("--simulate", is_flag=True, default=None, help="answer POST /simulate, as an autoscaler would ask")
@click.option("--record", type=_FILE, metavar="FILE", help="file to record events and attempts to, with gzip as .gz")
@click.option("--record-bytes", metavar="VALUE", help="about what the recording may take on disk  [default: 256Mi]")
@click.option(
    "--log-level",
    type=click.Choice(OPTIONS["log_level"].choices),
    help="least severe level to log, also set by POST /debug/log-level?level=  [default: info]",
)
@click.option("--log-format", type=click.Choice(("json", "text")), help="json, or text for terminals  [default: json]")
def schedule(
    config: Path | None,
    scheduler_name: str | None,
    address: str,
    bind_rate: float,
    status_rate: float,
    event_rate: float,
    max_unschedulable_seconds: float,
    seed: int | None,
    cpus: str,
    **flags: object,
) -> None:
    """Schedule pods, in the place of kube-scheduler or beside it.

    \b
    All pods that name this scheduler (spec.schedulerName), one process:
      extender schedule --kubeconfig ~/.kube/config --scheduler-name mine --no-leader-elect
    Several processes, of which one schedules:
      extender schedule --scheduler-name mine --lease-namespace kube-system
    By the classic Policy in a ConfigMap; by one of the providers of old:
      extender schedule --scheduler-name mine --policy configmap:kube-system/scheduler-policy
      extender schedule --scheduler-name mine --provider ClusterAutoscalerProvider

    A KubeSchedulerConfiguration with several profiles has pods of each one's schedulerName placed, and the extenders in
    it are asked as kube-scheduler asks them. /livez, /readyz, /metrics and, for this machine only, /debug/pods are
    served at the address of --bind; `extender status` reads the last.
    """
    if scheduler_name == "":
        raise ConfigurationError(["--scheduler-name: expected the schedulerName of the pods to schedule"])
    given = {name: value for name, value in {**flags, "bind": address}.items() if value is not None}
    settings = load(config, os.environ, given)
    from extender.app.schedule import Options  # --help, and a fault in the settings, need not wait for NumPy
    from extender.app.schedule import schedule as run

    rates = bind_rate, status_rate, event_rate
    run(settings, Options(scheduler_name, seed, *rates, max_unschedulable_seconds, one_cpu=cpus == "one"))


@click.command()
@click.argument("verb", type=click.Choice(("filter", "bind")), required=False)
@click.option("--bind", metavar="HOST:PORT", default="127.0.0.1:8888", show_default=True, help="where to listen")
def demo(verb: str | None, bind: str) -> None:
    """Serve a made-up cluster of 20 nodes, and say what to try on it; no Kubernetes needed.

    With VERB, print the body of such a call for a pod of that cluster instead.
    """
    if verb is None:
        _serve(bind)
    else:
        _print_body(verb)


def _serve(address: str) -> None:
    from extender.app.serve import serve  # --help need not wait for NumPy

    extender = "extender" if shutil.which("extender") else sys.argv[0]
    settings = load(None, {}, {"cluster": str(EXAMPLE), "bind": address, "log_format": "text", "drain_seconds": "0"})
    click.echo(f"A made-up cluster of 20 nodes, served on {address} until Ctrl-C. Try in another terminal:")
    for verb in ("filter", "bind"):
        click.echo(f"  {CALL.format(extender=extender, verb=verb, address=address)}")
    click.echo(f"  {extender} explain {PENDING} --cluster {EXAMPLE}")
    serve(settings)


def _print_body(verb: str) -> None:
    import msgspec

    from extender.offline.cluster import Cluster

    cluster = Cluster.load(EXAMPLE)
    pod = cluster.pod(POD)
    body: Mapping[str, Any] = {"Pod": pod, "Nodes": None, "NodeNames": cluster.nodes}
    if verb == "bind":
        node = cluster.decide(pod).best[0]
        body = {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node}
    click.echo(msgspec.json.encode(body))
