"""The command `extender certs`: creates and renews two certificate authorities, and the certificates they sign."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import yaml

from extender.cli.document_kinds import DocumentKind, headed
from extender.cli.output import Format, Output, output_option, say_lines, show, switch
from extender.errors import ConfigurationError
from extender.runtime.text import aligned


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--service", default="extender.extender-system.svc", show_default=True, help="DNS name of the server")
@click.option("--dns", multiple=True, metavar="NAME", help="another DNS name of the server")
@click.option(
    "--caller", default="system:kube-scheduler", show_default=True, help="name of the client that may call the extender"
)
@click.option("--scraper", default="prometheus", show_default=True, help="name of the client that may scrape metrics")
@click.option("--days", type=click.IntRange(1, 825), default=365, show_default=True, help="validity of a certificate")
@click.option(
    "--renew-days",
    type=int,
    default=30,
    show_default=True,
    help="renew a certificate that expires within this many days",
)
@switch("--rotate-ca", help="replace the authorities: run first to publish new ones, then again to sign with them")
@click.option("--secrets", metavar="NAMESPACE", help="print Secrets for kubectl apply, named after the Service")
@output_option()
def certs(
    directory: Path,
    service: str,
    dns: tuple[str, ...],
    caller: str,
    scraper: str,
    days: int,
    renew_days: int,
    rotate_ca: bool,
    secrets: str | None,
    output: Output,
) -> None:
    """Create the certificates of a webhook behind a Service, or renew them.

    DIRECTORY contains the certificates and keys. The authority ca signs the server and the caller; scrapers-ca signs
    the scraper, so that a scraper cannot bind pods. Valid certificates are kept: run the command again to renew, for
    example in a cron job, and apply the Secrets again.

    \b
    Create or renew the certificates, and list them with their expiry dates; then print them as Secrets:
      extender certs pki
      extender certs pki --secrets extender-system | kubectl apply -f -
    To replace the authorities without refusing calls: run with --rotate-ca, apply the Secrets, and wait until all peers
    have the new ca.crt. Then do the same again.

    Exit status: 0 if the certificates are valid, 2 for wrong usage or input, 1 for a failure.
    """
    if secrets and output.format not in (Format.TABLE, Format.YAML):
        raise ConfigurationError(["--secrets prints YAML for kubectl apply: leave out -o"])
    if find_spec("cryptography") is None:
        raise ConfigurationError(["certs needs the package cryptography: pip install 'podseat[certs]'"])
    from extender.cli.certificates import Pair, Store

    pairs = (
        Pair("server", "ca", (service, *dns), "server"),
        Pair("caller", "ca", (caller,), "client"),
        Pair("scraper", "scrapers-ca", (scraper,), "client"),
    )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = Store(directory, datetime.now(UTC), days, renew_days)
    certificates = [row for name in ("ca", "scrapers-ca") for row in store.authority(name, rotate=rotate_ca)]
    certificates += [store.pair(pair) for pair in pairs]
    if rotate_ca and store.knows_next("ca"):
        click.echo(
            "note: once every server and client has this ca.crt, run --rotate-ca again to sign with the next one",
            err=True,
        )
    if secrets:
        click.echo(_secrets(directory, secrets, service.partition(".")[0]))
    elif output.is_text:
        head = ("FILE", "NAME", "SIGNED BY", "UNTIL", "DONE")
        say_lines(aligned([head, *([*each.values()] for each in certificates)], "   "))
    else:
        show(headed(DocumentKind.CERTIFICATES, {"certificates": certificates}), output)


def _secrets(directory: Path, namespace: str, service: str) -> str:
    """Returns Secrets as YAML: each has a certificate, its key, and the CA that verifies its peers.

    They are named after the Service, so that several installations fit into a namespace. The private keys of the
    authorities are left out.
    """
    contents = {
        f"{service}-tls": ("server", "ca"),
        f"{service}-caller": ("caller", "ca"),
        f"{service}-scrapers": ("scraper", "scrapers-ca"),
    }
    return "---\n".join(yaml.safe_dump(_secret(directory, namespace, name, *contents[name])) for name in contents)


def _secret(directory: Path, namespace: str, name: str, pair: str, authority: str) -> dict[str, Any]:
    files = {"tls.crt": f"{pair}.crt", "tls.key": f"{pair}.key", "ca.crt": f"{authority}.crt"}
    data = {key: base64.b64encode((directory / file).read_bytes()).decode() for key, file in files.items()}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata, "data": data}
