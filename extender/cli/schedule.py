"""The command `extender schedule`: a scheduler of its own on the same engine."""

from __future__ import annotations

import os
from pathlib import Path

import click

from extender.config.settings import OPTIONS
from extender.config.sources import load

_FILE = click.Path(path_type=Path)
_PROVIDER = click.Choice(OPTIONS["provider"].choices)
_RATE = click.FloatRange(min=0, min_open=True)


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
    given = {name: value for name, value in {**flags, "bind": address}.items() if value is not None}
    settings = load(config, os.environ, given)
    from extender.app.schedule import Options  # --help, and a fault in the settings, need not wait for NumPy
    from extender.app.schedule import schedule as run

    run(settings, Options(scheduler_name, seed, bind_rate, status_rate, event_rate, max_unschedulable_seconds))
