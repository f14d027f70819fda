"""The command `extender doctor`: checks an installation, with one line for each check."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from extender.cli.document_kinds import DocumentKind, headed
from extender.cli.output import Output, file_option, output_option, say, show, switch
from extender.cli.source_options import access_options, refuse_options
from extender.config.cluster_access import IN_CLUSTER, ClusterAccess, live_access, with_default_files
from extender.errors import ConfigurationError

if TYPE_CHECKING:
    from extender.app.cluster_checks import Finding
    from extender.model.extender_config import ExtenderConfig

_FILE = click.Path(path_type=Path, dir_okay=False)
_COLORS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command()
@access_options
@click.option("--scheduler-config", type=_FILE, metavar="FILE", help="the file that kube-scheduler gets as --config")
@click.option("--url", metavar="URL", help="the extender's urlPrefix, if there is no --scheduler-config")
@file_option("--policy", help="the file that the extender gets as --policy")
@click.option(
    "--mode",
    type=click.Choice(("serve", "schedule")),
    default="serve",
    show_default=True,
    help="the command that the installation runs",
)
@switch("--preempt-for-rules", help="`extender serve` runs with this flag, so check that its account may evict pods")
@click.option(
    "--account",
    default="",
    metavar="NAMESPACE/NAME",
    help="the service account of the installation  [default: your own user]",
)
@click.option(
    "--lease",
    "leases",
    multiple=True,
    metavar="NAMESPACE/NAME",
    help="the Lease of the leader, which a replica should hold; repeatable",
)
@click.option(
    "--leader-service",
    default="",
    metavar="NAME",
    help="the Service, in the first Lease's namespace, that the leader points at itself",
)
@output_option()
def doctor(
    access: ClusterAccess,
    scheduler_config: Path | None,
    url: str | None,
    policy: Path | None,
    mode: str,
    preempt_for_rules: bool,
    account: str,
    leases: tuple[str, ...],
    leader_service: str,
    output: Output,
) -> None:
    """Check an installation: permissions, versions, certificates, the scheduler's configuration, each verb, the policy.

    It changes nothing and binds nothing. Each line is `ok`, `warn` or `fail`, with what to do about it.

    \b
    From a machine that can reach the API server and the extender:
      extender doctor --scheduler-config /etc/kubernetes/scheduler.yaml
      extender doctor --url http://127.0.0.1:8888/scheduler --policy policy.yaml
      extender doctor --mode schedule --account extender-system/extender

    Exit status: 0 if no check fails, 1 if one does, 2 for wrong usage or input.
    """
    from extender.app.cluster_checks import SERVE, SERVE_PREEMPTING, Installation
    from extender.app.doctor import diagnose

    for option, value in (("--account", account), *(("--lease", lease) for lease in leases)):
        if value and not all(value.partition("/")):
            raise ConfigurationError([f"{option} {value}: expected NAMESPACE/NAME"])
    if leader_service and not leases:
        raise ConfigurationError(["--leader-service: give --lease too, because the Service is in its namespace"])
    live = with_default_files(access) if access == IN_CLUSTER else live_access(access)
    if not (live or url or scheduler_config or policy):
        raise ConfigurationError(["nothing to check: give --kubeconfig, --scheduler-config, --url or --policy"])
    if mode != SERVE:
        refuse_options(("preempt_for_rules",), "an option of `extender serve`, not of `extender schedule`")
    mode = SERVE_PREEMPTING if preempt_for_rules else mode
    installation = Installation(mode, live, account, leases, leader_service, scheduler_config, extender_at(url), policy)
    findings = []
    for finding in diagnose(installation):
        findings.append(finding)
        if output.is_text:
            say(_line(finding))
    if not output.is_text:
        document = {"findings": [{**asdict(each), "docs": each.docs} for each in findings]}
        show(headed(DocumentKind.DIAGNOSIS, document), output)
    sys.exit(int(any(finding.level == "fail" for finding in findings)))


def _line(finding: Finding) -> str:
    head = click.style(f"{finding.level:<4}", fg=_COLORS[finding.level]) + f"  {finding.check}: {finding.message}"
    return f"{head}\n      {finding.fix} ({finding.docs})" if finding.fix else head


def extender_at(url: str | None) -> ExtenderConfig | None:
    """Returns an extender with all verbs at the URL; None without a URL. Raises ConfigurationError."""
    if url is None:
        return None
    from extender.model.extender_config import ExtenderConfig

    config = ExtenderConfig(url, "filter", "prioritize", "preempt", "bind", weight=1, node_cache_capable=True)
    try:
        config.url  # noqa: B018  raises an error if it is no URL
    except ConfigurationError as error:
        raise ConfigurationError([f"--url: {fault.rpartition(': ')[2]}" for fault in error.faults]) from None
    return config
