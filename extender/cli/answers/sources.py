"""The sources that commands take a cluster from to answer questions, and their exit statuses."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from extender.cli.files import told
from extender.errors import ClusterError, ConfigurationError, MalformedInput, UnknownNode, UnknownPod
from extender.runtime.near_names import nearest

if TYPE_CHECKING:  # NumPy takes longer to load than --help may take
    from extender.framework.profile import Profiles
    from extender.offline.manifests.templates import Workload
    from extender.offline.state import ClusterState

DOES_NOT_FIT = 3
_Command = TypeVar("_Command", bound=Callable[..., Any])
FILE = click.Path(path_type=Path)
OUTPUT = click.option(
    "-o", "--output", type=click.Choice(("table", "wide", "yaml", "json", "html")), default="table", show_default=True
)
_POD_PREFIXES = ("pod", "pods", "po")
_PROGRESS_SECONDS = 1.0
_STDOUT = f"{__name__}.stdout"


@dataclass(frozen=True, slots=True)
class Source:
    """The values of --cluster, --kubeconfig, --context, --namespace and --policy."""

    cluster: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    policy: Path | None = None

    def profiles(self) -> Profiles | None:
        """The rules to decide by. Raises ConfigurationError."""
        return profiles_of(self.policy, self.kubeconfig)

    def load(self, *, namespace: str = "", needs_nodes: bool = True) -> tuple[ClusterState, list[str]]:
        """The cluster, and what could not be read of it.

        Args:
            namespace: whose pods are asked about; by default that of what names none.
            needs_nodes: nothing can be answered where nodes may not be read.

        Raises:
            ConfigurationError: it is not said which, or the kubeconfig cannot be used.
            ClusterError: the API server cannot be reached, or lets nobody see what is needed.
        """
        from extender.offline.state import ClusterState

        if self.cluster is not None and self.context is not None:
            raise ConfigurationError(["--context names a context of a kubeconfig: give it or --cluster"])
        if self.cluster is not None and self.kubeconfig is None:
            return ClusterState.load(self.cluster, self.profiles()), []
        if self.cluster is None:
            from extender.app.live import look_at

            look = look_at(self.kubeconfig_file(), self.context, namespace or self.default_namespace())
            if look.nodes_unread and needs_nodes:
                raise ClusterError(f"{look.nodes_unread}: without them only `extender explain POD` has an answer")
            state = ClusterState(look.objects, self.profiles())
            state.nodes_unread = bool(look.nodes_unread)
            state.pods_unread = look.pods_unread or None
            return state, look.notes
        raise ConfigurationError(["give one cluster: --cluster PATH or --kubeconfig FILE"])

    def workloads(self, filenames: Sequence[Path]) -> list[Workload]:
        """The pods and templates in these files, perhaps of gzip; -: standard input.

        Raises:
            ConfigurationError: the cluster and a file, or two files, are to be read from standard input.
            MalformedInput: a file holds something else.
            OSError: a file cannot be read.
        """
        from extender.offline.manifests.files import read
        from extender.offline.manifests.templates import read_workloads

        if [*map(str, filenames), str(self.cluster)].count("-") > 1:
            raise ConfigurationError(["-f - and --cluster - cannot both read standard input"])
        return [
            workload
            for path in filenames
            for workload in read_workloads(read(path), str(path), self.default_namespace())
        ]

    def default_namespace(self) -> str:
        """The namespace of what names none: that of -n, of the kubeconfig's context, or `default`."""
        if self.namespace or self.cluster is not None:
            return self.namespace or "default"
        from extender.app.live import namespace_of

        return namespace_of(self.kubeconfig_file(), self.context) or "default"

    def kubeconfig_file(self) -> Path:
        """The kubeconfig that is named, or kubectl's. Raises ConfigurationError where there is none."""
        chosen = kubeconfig_of(self.kubeconfig)
        if chosen is None:
            named = os.environ.get("KUBECONFIG") or "~/.kube/config"
            raise ConfigurationError([f"give one cluster: --cluster PATH or --kubeconfig FILE (there is no {named})"])
        return chosen


def kubeconfig_of(given: Path | None) -> Path | None:
    """Returns the kubeconfig that is given, else the first of $KUBECONFIG that exists, or ~/.kube/config; else None."""
    if given is not None:
        return given
    named = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube/config")
    return next((path for path in map(Path, named.split(os.pathsep)) if path.is_file()), None)


def source_options(command: _Command, *, compares: bool = False) -> _Command:
    """Adds the options of a Source to a command, which gets it as `source`; faults of input end it with status 2.

    One that `compares` takes several policies, and gets them as `policies`; its source has none.
    """

    @functools.wraps(command)
    def with_source(
        cluster: Path | None,
        kubeconfig: Path | None,
        context: str | None,
        namespace: str | None,
        policy: Path | tuple[Path, ...] | None,
        **others: Any,
    ) -> Any:
        if isinstance(policy, tuple):
            others["policies"], policy = policy, None
        try:
            with answering():
                return command(Source(cluster, kubeconfig, context, namespace, policy), **others)
        except (MalformedInput, UnknownPod, UnknownNode) as error:
            raise ConfigurationError([str(error)]) from None
        except BrokenPipeError:
            raise  # a reader like `head` has seen enough
        except OSError as error:
            raise ConfigurationError([told(error)]) from None

    compared = "rules and weights to compare: twice, or once to compare with the defaults"
    options = (
        click.option("--cluster", type=FILE, metavar="PATH", help="file or folder of objects, -: stdin"),
        click.option(
            "--kubeconfig", type=FILE, metavar="FILE", help="a live cluster  [default: $KUBECONFIG, ~/.kube/config]"
        ),
        click.option("--context", metavar="NAME", help="context of the kubeconfig  [default: its current one]"),
        click.option("-n", "--namespace", metavar="NAME", help="namespace of what names none  [default: default]"),
        click.option(
            "--policy",
            type=FILE,
            multiple=compares,
            metavar="FILE",
            help=compared if compares else "rules and weights to decide by",
        ),
    )
    decorated: Any = with_source
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]  # click's decorators keep no types


def profiles_of(policy: Path | None, kubeconfig: Path | None = None) -> Profiles | None:
    """The profiles of a policy file; None: kube-scheduler's defaults. Raises ConfigurationError."""
    if policy is None:
        return None
    from extender.app.policies import profiles_of as read_profiles

    return read_profiles(policy, "DefaultProvider", kubeconfig=kubeconfig)


def pod_key(given: str, namespace: str) -> str:
    """`namespace/name` of NAMESPACE/NAME, NAME, pod/NAME or NAMESPACE/pod/NAME. Raises ConfigurationError."""
    *before, name = given.split("/")
    named = [part for part in before if part not in _POD_PREFIXES]
    if len(named) > 1 or not name:
        raise ConfigurationError([f"{given}: want NAME, NAMESPACE/NAME or pod/NAME"])
    return f"{named[-1] if named else namespace}/{name}"


def known_key(state: ClusterState, key: str) -> str:
    """The key, if the cluster has such a pod.

    Raises:
        UnknownPod: with the nearest name.
        ClusterError: not all pods may be read, and it is none of those that may.
    """
    try:
        state.info(key)
    except UnknownPod as error:
        if why := state.pods_unread:
            told = f"no pod {key} among what may be read: {why}; explain its manifest with -f FILE"
            raise ClusterError(told) from None
        name, keys = key.partition("/")[2], {info.pod.key.partition("/")[2]: info.pod.key for info in state.pending}
        near = next((each for each in keys if each.startswith(f"{name}-")), "") or nearest(name, keys)
        raise UnknownPod(f"{error}{f' (did you mean {keys[near]}?)' if near else ''}") from None
    return key


class Progress:
    """Says on a terminal how far a long answer is, once a second has gone by."""

    def __init__(self, what: str) -> None:
        self._what, self._shown_at = what, time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() and (now - self._shown_at >= _PROGRESS_SECONDS or (done == total and total > 1)):
            self._shown_at = now
            click.echo(f"\r{self._what}: {done} of {total}" + ("\r\x1b[K" if done == total else ""), err=True, nl=False)


@contextmanager
def answering() -> Iterator[None]:
    """Has stdout to the answer alone: what users' rules print meanwhile goes to stderr."""
    click.get_current_context().meta[_STDOUT] = sys.stdout
    with redirect_stdout(sys.stderr):
        yield


def answer_stream() -> TextIO | None:
    """Returns where the answer goes; None: it is closed."""
    stream: TextIO | None = click.get_current_context().meta.get(_STDOUT, sys.stdout)
    return stream


def say(text: str) -> None:
    """Prints a part of the answer."""
    if (stream := answer_stream()) is not None:
        click.echo(text, file=stream)


def show(document: Any, output: str) -> None:
    """Prints a document as JSON or YAML."""
    import json

    if output == "json":
        say(json.dumps(document, indent=2))
        return
    import yaml

    say(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120).rstrip())


def print_answer(
    lines: Iterable[str], document: dict[str, Any], unread: Sequence[str], output: str, template: str, **context: object
) -> None:
    """Prints an answer as lines, as a document or as a page, with what could not be read in its notes."""
    told = {**document, "notes": [*unread, *document.get("notes", ())]}
    if output == "html":
        from extender.offline.html import rendering

        say(rendering.file(template, told, **context))
    elif output in ("json", "yaml"):
        show(told, output)
    else:
        for line in (*(f"note: {note}" for note in unread), *lines):
            say(line)
