"""The command `extender status`: the pods that a running `extender schedule` looks after, by queue."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import click
import yaml

from extender.errors import ConfigurationError, ExtenderError
from extender.runtime.text import age, aligned

SECTIONS = {
    "active": "about to be tried",
    "backoff": "refused, and tried again after a pause",
    "unschedulable": "refused, and waiting for an event that may help",
    "gated": "not to be tried yet: a scheduling gate, or victims on their way out",
    "inFlight": "being scheduled",
    "assumed": "on its node, by our decision: the API server has not confirmed it yet",
    "arriving": "just seen",
}
PATH = "/debug/pods"
_TIMEOUT_SECONDS = 10.0
FIELDS = {
    "NAMESPACE": "namespace",
    "NAME": "name",
    "TIER": "tier",
    "ATTEMPTS": "attempts",
    "SINCE": "sinceSeconds",
    "REFUSED BY": "refusedBy",
    "NODE": "node",
    "NOMINATED": "nominatedNode",
}
_WIDE = {**FIELDS, "PRIORITY": "priority", "SCHEDULER": "schedulerName", "UID": "uid"}
Pod = Mapping[str, Any]


@click.command(
    epilog="\b\nTiers:\n" + "\n".join(f"  {name:<14} {meaning}" for name, meaning in SECTIONS.items()),
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--server", metavar="URL", default="http://127.0.0.1:8889", show_default=True, help="the scheduler's --bind"
)
@click.option("-n", "--namespace", metavar="NAME", help="only pods of this namespace")
@click.option("--tier", type=click.Choice(tuple(SECTIONS)), multiple=True, help="only pods in this tier; repeatable")
@click.option(
    "-o", "--output", type=click.Choice(("table", "wide", "json", "yaml")), default="table", show_default=True
)
def status(names: tuple[str, ...], server: str, namespace: str | None, tier: tuple[str, ...], output: str) -> None:
    """Tell where each pod is that a running `extender schedule` has yet to place, and what keeps it.

    \b
    All of them; those that found no place, with the node they wait for; one as YAML:
      extender status
      extender status --tier unschedulable -o wide
      extender status shop/web-0 -o yaml
    Of a scheduler in the cluster:
      kubectl -n extender-system port-forward deployment/extender 8889 &
      extender status

    SINCE is the time since a pod came to the queue or was last given back, REFUSED BY the plugins that turned it down
    then, NOMINATED the node that victims leave for it. Exit status: 0, also where no pod waits; 1 where there is no
    answer; 2 for wrong usage.
    """
    picture = fetched(server)
    pods = [pod for pod in pods_of(picture) if _is_meant(pod, names, namespace) and (not tier or pod["tier"] in tier)]
    if not picture["leading"]:
        click.echo("note: this replica does not schedule; another may lead", err=True)
    match output:
        case "json":
            click.echo(json.dumps({"pods": pods, "scheduled": picture["scheduled"]}, indent=2))
        case "yaml":
            told = {"pods": pods, "scheduled": picture["scheduled"]}
            click.echo(yaml.safe_dump(told, sort_keys=False, allow_unicode=True), nl=False)
        case _ if pods:
            click.echo(table(pods, _WIDE if output == "wide" else FIELDS))
        case _:
            click.echo(f"No such pod waits; {picture['scheduled']} pods are scheduled.", err=True)


def fetched(server: str) -> Mapping[str, Any]:
    """Returns the scheduler's page. Raises as `answered`, and ExtenderError where no `extender schedule` answers."""
    return _picture(server, *answered(server, PATH, "--server", "`extender schedule`"))


def answered(server: str, path: str, option: str, program: str) -> tuple[int, bytes]:
    """Returns status and body of the answer at that path of a running program.

    Raises:
        ConfigurationError: `server`, the value of the option, is no URL.
        ExtenderError: nobody answers there.
    """
    url = urlsplit(server if "//" in server else f"http://{server}")
    try:
        host, port, secure = url.hostname, url.port, url.scheme == "https"
    except ValueError:
        host = None
    if not host or url.scheme not in ("http", "https"):
        raise ConfigurationError([f"{option} {server}: want a URL, like http://127.0.0.1:8889"])
    connection: http.client.HTTPConnection = (
        http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_SECONDS, context=ssl.create_default_context())
        if secure
        else http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
    )
    try:
        connection.request("GET", f"{url.path.rstrip('/')}{path}")
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise ExtenderError(
            f"nobody answers at {server}: {getattr(error, 'strerror', None) or error}; is {program} running, "
            f"and is {option} the address that it was given as --bind?"
        ) from None
    finally:
        connection.close()


def _picture(server: str, status: int, body: bytes) -> Mapping[str, Any]:
    try:
        picture = json.loads(body) if status == http.client.OK else None
    except ValueError:
        picture = None
    if not isinstance(picture, dict) or not {*SECTIONS, "scheduled", "leading"} <= picture.keys():
        raise ExtenderError(
            f"{server}{PATH} answers {status}, and not as `extender schedule` does: is it another server?"
        )
    return picture


def pods_of(picture: Mapping[str, Any]) -> list[Pod]:
    """The pods of all sections, each with its tier: by tier, then by priority."""
    pods = [
        {"namespace": pod["namespace"], "name": pod["name"], "tier": section, **pod}
        for section in SECTIONS
        for pod in picture[section]
    ]
    order = {section: position for position, section in enumerate(SECTIONS)}
    return sorted(pods, key=lambda pod: (order[pod["tier"]], -pod["priority"], pod["namespace"], pod["name"]))


def _is_meant(pod: Pod, names: Sequence[str], namespace: str | None) -> bool:
    if namespace is not None and pod["namespace"] != namespace:
        return False
    return not names or pod["name"] in names or f"{pod['namespace']}/{pod['name']}" in names


def table(pods: Iterable[Pod], fields: Mapping[str, str]) -> str:
    """The pods as lines that stand under each other, as kubectl prints them."""
    lines = [[*fields], *([_shown(field, pod[field]) for field in fields.values()] for pod in pods)]
    return "\n".join(aligned(lines, "   "))


def _shown(field: str, value: Any) -> str:
    if field == "sinceSeconds" and value is not None:
        return age(value)
    if isinstance(value, list):
        return ",".join(value) or "-"
    return "-" if value in (None, "") else str(value)
