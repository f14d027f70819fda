"""The commands that run a process: serve, schedule, demo, and view for a browser on this machine.

`extender rule new` and `extender demo scheduler` print `SCHEDULER_CONFIGURATION`, of a kube-scheduler that calls the
extender. A test compares the configurations of the chart, the README and docs/rules.md with it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from extender.cli.output import add_options, file_option, say
from extender.cli.source_options import Progress, Source, profiles_of, refuse_options, source_options
from extender.config.settings import REMOVED, Command, Option, Settings, host_and_port, load, options_of
from extender.errors import ConfigurationError

_Function = TypeVar("_Function", bound=Callable[..., Any])
SCHEDULER_CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 100 # otherwise the extender is asked about a share of the nodes only
extenders:
- urlPrefix: http://{address}/scheduler
  filterVerb: filter
  prioritizeVerb: prioritize
  preemptVerb: preempt
  bindVerb: bind
  weight: 1
  nodeCacheCapable: true # without it, in-tree scores are wrong: kubernetes#141781
"""
EXAMPLE = Path(__file__).parents[1] / "offline" / "example.yaml"
POD, PENDING = "shop/api-58b9c-w8x5n", "ml/recommend-7f6d-v4nzs"
CALL = "{extender} demo {verb} | curl -s {address}/scheduler/{verb} -H 'Content-Type: application/json' -d @-"

_SECTIONS = {
    "Address and certificates": (
        "bind insecure-bind metrics-bind prefix tls-cert tls-key client-ca client-names metrics-client-ca"
    ),
    "Cluster": "kubeconfig context as as-group cluster watch-kinds",
    "Rules and answers": (
        "policy kubernetes-version feature-gates scheduler-name score-scale"
        " filter-answer scheduler-filters preempt-for-rules on-rule-failure exempt-namespaces simulate"
    ),
    "Pods that wait for others": ("coscheduling group-bind-seconds permit-seconds activate-after-seconds"),
    "Leader election": (
        "leader-elect lease-follows-calls lease-namespace lease-name lease-duration-seconds leader-service"
        " own-namespace own-labels own-address"
    ),
    "Limits": (
        "body-limit connections decision-seconds drain-seconds settle-seconds assumed-ttl-seconds max-staleness-seconds"
    ),
    "Records and logs": "record record-bytes log-format log-level",
}
"""The flags of `serve` and `schedule` by the heading that they have in the help. All others are below "Options"."""


class ProcessCommand(click.Command):
    """A command whose help shows the options below the headings of _SECTIONS."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the arguments. Raises UsageError with the reason if a flag was removed."""
        given = {argument.partition("=")[0] for argument in args}
        for option in REMOVED:
            if option.flag in given:
                raise click.UsageError(f"{option.flag}: {option.description}", ctx)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options, section by section."""
        headings = {f"--{name}": heading for heading, names in _SECTIONS.items() for name in names.split()}
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in ("Options", *_SECTIONS)}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None:
                sections[headings.get(parameter.opts[0], "Options")].append(row)
        for heading, rows in sections.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def settings_options(command: Command) -> Callable[[_Function], _Function]:
    """Adds --config and a flag for each setting of `command` to a function, which gets them as keyword arguments."""

    def with_options(function: _Function) -> _Function:
        config = file_option("--config", envvar="EXTENDER_CONFIG", help="settings file (YAML)")
        flags = [_flag(option, option.defaults[command]) for option in options_of(command)]
        return add_options(function, [config, *flags])  # type: ignore[no-any-return]  # as click's decorators

    return with_options


def _flag(option: Option, default: Any) -> Callable[[_Function], _Function]:
    shown = ", ".join(default) if option.many else default
    note = "" if shown in (None, "", False) else f"  [default: {shown}]"
    if option.annotation is bool:
        return click.option(
            f"{option.flag}/{option.negative_flag}", option.name, default=None, help=option.description + note
        )
    return click.option(
        option.flag,
        option.name,
        type=click.Choice(option.choices) if option.choices else str,
        multiple=option.many,
        default=() if option.many else None,
        metavar=None if option.choices else "TEXT" if option.many else _metavar(option),
        help=option.description + note,
    )


def _load(command: Command, config: Path | None, flags: Mapping[str, Any]) -> Settings:
    """Returns the settings. Raises ConfigurationError."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in flags.items()
        if value not in (None, ())
    }
    return load(config, os.environ, given, command)


def _metavar(option: Option) -> str:
    if option.annotation == Path | None:
        return "PATH" if option.name == "cluster" else "FILE"
    return "HOST:PORT" if option.name.endswith("bind") else "SECONDS" if option.name.endswith("_seconds") else "VALUE"


@click.command(cls=ProcessCommand)
@settings_options("serve")
def serve(config: Path | None, **flags: Any) -> None:
    """Answer kube-scheduler's filter, prioritize, preempt and bind calls.

    \b
    Against a cluster, for a scheduler on the same machine:
      extender serve --kubeconfig ~/.kube/config --bind 127.0.0.1:8888
    On objects from a file (as `kubectl get nodes,pods -A -o yaml` prints them), no cluster needed:
      extender serve --cluster cluster.yaml --log-format text

    Every option can also be set in the file of --config (--body-limit as bodyLimit) or in the environment
    (EXTENDER_BODY_LIMIT). An option overrides the environment, and the environment overrides the file.

    Exit status: 0 after SIGTERM or Ctrl-C, 2 for wrong settings or a faulty policy, 1 for a failure.
    """
    settings = _load("serve", config, flags)
    # Imported here, so that --help and errors in the settings do not wait for NumPy.
    from extender.app.serve import serve as run

    run(settings)


@click.command(cls=ProcessCommand)
@settings_options("schedule")
def schedule(config: Path | None, **flags: Any) -> None:
    """Schedule pods, instead of kube-scheduler or beside it.

    \b
    One process, for all pods that name this scheduler (spec.schedulerName):
      extender schedule --kubeconfig ~/.kube/config --scheduler-name mine --no-leader-elect
    Several processes, of which one schedules:
      extender schedule --scheduler-name mine --lease-namespace kube-system
    With a classic Policy in a ConfigMap:
      extender schedule --scheduler-name mine --policy configmap:kube-system/scheduler-policy

    If --policy is a KubeSchedulerConfiguration with several profiles, the pods of every profile are scheduled. The
    extenders of the policy are called as kube-scheduler calls them. The address of --bind serves /livez, /readyz and
    /metrics. It also serves /debug/pods, which `extender status` reads, but only to this machine.

    Exit status: 0 after SIGTERM or Ctrl-C, 2 for wrong settings or a faulty policy, 1 for a failure, such as a lost
    Lease.
    """
    settings = _load("schedule", config, flags)
    # Imported here, so that --help and errors in the settings do not wait for NumPy.
    from extender.app.schedule import schedule as run

    run(settings)


@click.command()
@click.argument("what", type=click.Choice(("filter", "bind", "cluster", "scheduler")), required=False)
@click.option("--bind", metavar="HOST:PORT", default="127.0.0.1:8888", show_default=True, help="where to listen")
def demo(what: str | None, bind: str) -> None:
    """Serve a made-up cluster of 20 nodes, and print commands to try on it; no Kubernetes is needed.

    With `filter` or `bind`, print the body of such a call for a pod of that cluster instead. With `cluster`, print the
    objects of the cluster, for the commands that read a file. With `scheduler`, print the configuration of a
    kube-scheduler that calls an extender at the address of --bind.

    \b
    Serve the cluster, and call the service from another terminal:
      extender demo
      extender demo filter | curl -s 127.0.0.1:8888/scheduler/filter -H 'Content-Type: application/json' -d @-
    Write the same cluster to a file:
      extender demo cluster > cluster.yaml
    """
    if what is None:
        _serve(bind)
    elif what == "cluster":
        click.echo(EXAMPLE.read_text(), nl=False)
    elif what == "scheduler":
        click.echo(SCHEDULER_CONFIGURATION.format(address=bind), nl=False)
    else:
        _print_body(what)


def _serve(address: str) -> None:
    from extender.app.serve import serve  # imported here, because --help must not wait for NumPy
    from extender.web.app import listener_at

    extender = "extender" if shutil.which("extender") else sys.argv[0]
    settings = load(None, {}, {"cluster": str(EXAMPLE), "bind": address, "log_format": "text", "drain_seconds": "0"})
    listener_at(*host_and_port(settings.bind)).close()  # an address in use must fail before the text is printed
    click.echo(f"A made-up cluster of 20 nodes, served on {address} until Ctrl-C. Try in another terminal:")
    for verb in ("filter", "bind"):
        click.echo(f"  {CALL.format(extender=extender, verb=verb, address=address)}")
    click.echo(f"  {extender} explain {PENDING} --cluster {EXAMPLE}")
    click.echo(f"or open http://{address}/ui in a browser.")
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


@click.command()
@partial(source_options, whole=True, asks=False)
@file_option("--with", "others", multiple=True, help="another policy, to compare side by side with --policy")
@file_option(
    "--recording", help="show the cluster at each step of this recording, a file of `extender record` or --record"
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8890, show_default=True, help="port to listen on; 0: any free port"
)
def view(source: Source, others: Sequence[Path], recording: Path | None, port: int) -> None:
    """Show a cluster in a browser: pending pods by cause, each pod, a map of the nodes, a comparison of two policies.

    A live cluster is read again when a page is opened, at most every 10 seconds. Nothing is written to it, and only
    this machine can see the pages.

    \b
    A file or directory; the live cluster of a context:
      extender view --cluster cluster.json.gz
      extender view --context production
    Two policies side by side:
      extender view --cluster cluster.json.gz --policy now.yaml --with next.yaml
    A recording, with a slider through its steps:
      extender view --recording recording.jsonl.gz

    `extender serve` and `extender schedule` have the same pages at /ui.

    Exit status: 0 after Ctrl-C, 2 for wrong usage or input, 1 for a failure, such as a port in use.
    """
    # imported here, because --help must not wait for NumPy
    from extender.app.live_pages import LiveCluster, look_at_cluster, look_at_recording
    from extender.app.live_pages import view as run
    from extender.ui import Choices

    if recording is not None and source.names_cluster:
        raise ConfigurationError(["give either --recording FILE or a cluster"])
    if recording is not None:
        refuse_options(("namespace",), "cannot be used with --recording, which is read with all namespaces")
        judged_by = source.profiles() if source.policy else None
        look = look_at_recording(recording, judged_by, source.kubernetes_version)
    elif source.cluster is None:
        look = LiveCluster(source.load).look
    else:
        look = look_at_cluster(source.load()[0], str(source.cluster))
    version = source.kubernetes_version
    compared = {path.name: profiles for path in others if (profiles := profiles_of(path, version=version))}
    name = source.policy.name if source.policy else "the recording's" if recording else "defaults"
    choices = Choices(name, compared, progress=Progress("pods"))
    run(look, choices, port, lambda address: say(f"serving {address} until Ctrl-C"), source.timeout_seconds)
