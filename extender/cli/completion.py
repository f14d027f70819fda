"""Completes names in a shell: pods, pod groups, nodes, namespaces and kubeconfig contexts.

A completion must not disturb a user who types. So it takes two seconds at most, and offers nothing if it fails.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import click
from click.shell_completion import ShellComplete, get_completion_class

from extender.config.cluster_access import ClusterAccess, listed, with_default_files
from extender.errors import ConfigurationError

LIMIT_SECONDS = 2.0
_SHELLS = ("bash", "zsh", "fish")
_NO_FILES = ":4"  # cobra's ShellCompDirectiveNoFileComp
_FILES = ":0"  # cobra's ShellCompDirectiveDefault: the shell completes file names
_PREFIXES = {"Pod": "", "PodGroup": "podgroup/", "CompositePodGroup": "compositepodgroup/"}
_PLAIN = re.compile(r"[\w./:@-]+", re.ASCII)  # click's bash script does not quote names, which may come from a file
_WHERE = {
    "bash": "add it to ~/.bashrc:  eval \"$(extender completion bash)\"",
    "zsh": "add it to ~/.zshrc:  eval \"$(extender completion zsh)\"",
    "fish": "write it to ~/.config/fish/completions/extender.fish",
}  # fmt: skip


@click.command(epilog="\b\nWhere it belongs:\n" + "\n".join(f"  {shell}: {where}" for shell, where in _WHERE.items()))
@click.argument("shell", metavar="SHELL", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes commands, options and names of pods, groups, nodes and contexts in a shell.

    `kubectl podseat` completes with kubectl's own script, if `kubectl_complete-podseat` is on the PATH.
    """
    script = get_completion_class(shell)
    if script is None:
        raise ConfigurationError([f"{shell}: no completion for this shell"])
    root = click.get_current_context().find_root()
    click.echo(script(root.command, {}, "extender", "_EXTENDER_COMPLETE").source())


def answer_kubectl(group: click.Group, name: str, arguments: Sequence[str]) -> None:
    """Prints the completions of the last argument as kubectl expects them from kubectl_complete-NAME."""
    *before, incomplete = arguments or ("",)
    items = ShellComplete(group, {}, "kubectl", "").get_completions([name, *before], incomplete)
    for item in items:
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(_FILES if any(item.type in ("file", "dir") for item in items) else _NO_FILES)


def contexts(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Returns the names of the kubeconfig's contexts that begin with `incomplete`, for the shell's completion."""
    return _beginning(incomplete, lambda: _context_names(ctx))


def namespaces(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Returns the names of the namespaces that begin with `incomplete`."""
    return _beginning(incomplete, lambda: (name for _, name in _names(ctx, "Namespace")))


def nodes(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Returns the names of the nodes that begin with `incomplete`."""
    return _beginning(incomplete, lambda: (name for _, name in _names(ctx, "Node")))


def pods_and_groups(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Returns the names of the pods and groups that begin with `incomplete`, in --namespace if it is given."""
    chosen = ctx.params.get("namespace")

    def read() -> Iterable[str]:
        for kind, prefix in _PREFIXES.items():
            for namespace, name in _names(ctx, kind, chosen or ""):
                if chosen in (None, namespace):
                    yield f"{prefix}{name}" if chosen else f"{namespace}/{prefix}{name}"

    return _beginning(incomplete, read)


def _beginning(incomplete: str, read: Callable[[], Iterable[str]]) -> list[str]:
    """Returns the names that begin with `incomplete`; none if reading them fails or takes too long."""
    found: list[str] = []

    def collect() -> None:
        with suppress(Exception):  # an error message would appear in the line that the user types
            found.extend(name for name in read() if name.startswith(incomplete) and _PLAIN.fullmatch(name))

    reading = threading.Thread(target=collect, daemon=True)
    reading.start()
    reading.join(LIMIT_SECONDS)
    return sorted(found)


def _access(ctx: click.Context) -> ClusterAccess | None:
    given = ctx.params
    files = listed(given["kubeconfig"]) if given.get("kubeconfig") else ()
    groups = tuple(given.get("as_group") or ())
    return with_default_files(ClusterAccess(files, given.get("context"), given.get("as_"), groups))


def _context_names(ctx: click.Context) -> list[str]:
    from extender.offline.live import context_names

    access = _access(ctx)
    return context_names(access) if access else []


def _names(ctx: click.Context, kind: str, namespace: str = "") -> list[tuple[str, str]]:
    """Returns (namespace, name) of the objects of this kind in the cluster that the options name."""
    if (cluster := ctx.params.get("cluster")) and str(cluster) == "-":
        return []  # the cluster comes from standard input, where the user is typing
    if cluster:
        from extender.snapshots.files import load

        objects = load(cluster)
        return [(obj.namespace, obj.name) for obj in objects if type(obj).__name__ == kind]
    from extender.offline.live import names_of

    access = _access(ctx)
    return names_of(access, kind, namespace, LIMIT_SECONDS) if access else []
