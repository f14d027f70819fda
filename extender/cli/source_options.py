"""Defines what commands that answer questions about a cluster share: options, printed answers, exit statuses.

Options that would have no effect together with the other options of a command are refused. `--add-node` gives new
nodes, each like a node of the cluster or as a file describes it.
"""

from __future__ import annotations

import errno
import functools
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from extender.cli.completion import contexts, namespaces, nodes
from extender.cli.document_kinds import DocumentKind, headed, with_notes
from extender.cli.output import FILE, Output, add_options, answering, file_option, os_error_text, say, say_lines, show
from extender.config.cluster_access import IN_CLUSTER, ClusterAccess, listed, live_access
from extender.config.settings import OPTIONS
from extender.errors import ClusterError, ConfigurationError, MalformedInput, UnknownNode, UnknownPod
from extender.runtime.clock import INTERRUPTIONS, note_subject
from extender.runtime.questions import SECONDS, time_limit
from extender.runtime.text import whole_number

if TYPE_CHECKING:  # not imported at run time, because --help must not wait for NumPy
    from extender.framework.profile import Profiles
    from extender.model.pod import Pod
    from extender.offline.fresh_nodes import NodeTemplate
    from extender.offline.manifests.templates import Workload
    from extender.offline.state import ClusterState

ACCESS = ("kubeconfig", "context", "as_", "as_group")
"""The names of the options that `access_options` adds."""
DOES_NOT_FIT = 3
_Command = TypeVar("_Command", bound=Callable[..., Any])
_POD_PREFIXES = ("pod", "pods", "po")
_GROUP_PREFIXES = {
    "podgroup": "PodGroup",
    "podgroups": "PodGroup",
    "compositepodgroup": "CompositePodGroup",
    "compositepodgroups": "CompositePodGroup",
}
KIND_PREFIXES = (*_POD_PREFIXES, *_GROUP_PREFIXES)
"""The words before the name of a pod or group, as in pod/web-0."""
_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE)  # these errors occur only when a file is written
_PROGRESS_SECONDS = 1.0
_FALLBACK = "namespace whose pods to read if you may not read the pods of all namespaces"


def refuse_options(names: Collection[str], reason: str) -> None:
    """Refuses the options of these names if they were given on the command line.

    An option that is given with its default value, such as --no-nodes, changes nothing and is accepted.

    Raises:
        ConfigurationError: one of the options was given; the message ends with `reason`.
    """
    context = click.get_current_context()
    given = [
        max(option.opts, key=len)
        for option in context.command.params
        if option.name in names
        and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
        and context.params[option.name] != option.default
    ]
    if given:
        raise ConfigurationError([f"{', '.join(given)}: {reason}"])


@dataclass(frozen=True, slots=True)
class Source:
    """The values of the options that `source_options` adds: the cluster to read, and the rules to use.

    Attributes:
        access: how to reach a live cluster according to the options; `live_access` adds kubectl's default files.
        kubernetes_version: the version of kube-scheduler to decide like; None for that of the policy or the cluster.
        timeout_seconds: how long an answer may take; 0 means that there is no limit.
    """

    cluster: Path | None = None
    access: ClusterAccess = IN_CLUSTER
    namespace: str | None = None
    policy: Path | None = None
    timeout_seconds: float = SECONDS
    kubernetes_version: str | None = None

    def profiles(self) -> Profiles | None:
        """Returns the profiles of --policy; None for kube-scheduler's defaults. Raises ConfigurationError."""
        return profiles_of(self.policy, self.access, self.kubernetes_version)

    @property
    def names_cluster(self) -> bool:
        """True if an option names the cluster."""
        return self.cluster is not None or self.access != IN_CLUSTER

    def load(self, *, namespace: str = "", needs_nodes: bool = True) -> tuple[ClusterState, list[str]]:
        """Reads the cluster; returns it, and notes on parts of it that could not be read.

        Args:
            namespace: the namespace of the pods that the command is about; by default the value of --namespace.
            needs_nodes: True if the command cannot answer without the nodes.

        Raises:
            ConfigurationError: no cluster or more than one is given, or the kubeconfig cannot be used.
            ClusterError: the API server cannot be reached, or does not let this user read what is needed.
        """
        from extender.offline.state import ClusterState

        if self.cluster is not None and self.access.kubeconfigs:
            raise ConfigurationError(["give one cluster: --cluster PATH or --kubeconfig FILE"])
        if self.cluster is not None and self.access != IN_CLUSTER:
            raise ConfigurationError(["--context, --as and --as-group are about a live cluster, not about --cluster"])
        try:
            if self.cluster is not None:
                left_out: list[str] = []
                return ClusterState.load(self.cluster, self.profiles(), left_out), left_out
            from extender.offline.live import read_state

            access, own_namespace = self.live_access(), namespace or self.default_namespace()
            return read_state(access, own_namespace, self.profiles(), needs_nodes=needs_nodes)
        except INTERRUPTIONS as error:
            note_subject(error, f"reading {self.cluster or 'the live cluster'}")
            raise

    def workloads(self, filenames: Sequence[Path]) -> list[Workload]:
        """Returns the pods and templates in these files, and in the files of these folders.

        A file may be gzipped, and `-` is standard input. All of them are one input, as for `kubectl apply -f A -f B`.

        Raises:
            ConfigurationError: standard input is given more than once, for files or the cluster.
            MalformedInput: a file has no pods or templates.
            OSError: a file cannot be read.
        """
        from extender.offline.manifests.templates import read_files
        from extender.snapshots.files import read_texts

        if [*map(str, filenames), str(self.cluster)].count("-") > 1:
            raise ConfigurationError(["-f - and --cluster - cannot both read standard input"])
        texts = [text for path in filenames for text in read_texts(path)]
        return read_files(texts, self.default_namespace()) if texts else []

    def default_namespace(self) -> str:
        """Returns the namespace of objects without a namespace: --namespace, or the context's, or `default`."""
        if self.namespace or self.cluster is not None:
            return self.namespace or "default"
        from extender.offline.live import namespace_of

        return namespace_of(self.live_access()) or "default"

    def live_access(self) -> ClusterAccess:
        """Returns how to reach the live cluster. Raises ConfigurationError if there is no kubeconfig."""
        return live_access(self.access, "--cluster PATH or --kubeconfig FILE")


def access_options(command: _Command) -> _Command:
    """Adds kubectl's options for a live cluster to a command, which gets the values as `access`, a ClusterAccess."""

    @functools.wraps(command)
    def with_access(
        kubeconfig: Path | None, context: str | None, as_: str | None, as_group: tuple[str, ...], **others: Any
    ) -> Any:
        kubeconfigs = listed(kubeconfig) if kubeconfig else ()
        return command(access=ClusterAccess(kubeconfigs, context, as_, as_group), **others)

    options = (
        file_option("--kubeconfig", help="a live cluster  [default: $KUBECONFIG, ~/.kube/config]"),
        click.option(
            "--context",
            metavar="NAME",
            shell_complete=contexts,
            help="context of the kubeconfig  [default: the current context]",
        ),
        click.option("--as", "as_", metavar="USER", help="user to act as in the live cluster"),
        click.option(
            "--as-group", metavar="GROUP", multiple=True, help="group to act as a member of, with --as; repeatable"
        ),
    )
    return add_options(with_access, options)  # type: ignore[no-any-return]  # click's decorators lose the function's type


def source_options(
    command: _Command,
    *,
    compares: bool = False,
    decides: bool = True,
    whole: bool = False,
    asks: bool = True,
    namespace_of: str = "objects that name none",
) -> _Command:
    """Adds the options of a Source to a command, which gets the Source as `source`. Exits with 2 on faulty input.

    Args:
        compares: True if --policy may be given twice. The command then gets the files as `policies`, and its source has
            no policy.
        decides: False if the command makes no decisions, so that it has no --policy.
        whole: True if the command reads the pods of all namespaces. --namespace is then only for a user who may read
            the pods of one namespace.
        asks: False if the command serves answers until it is ended, so that --timeout limits each of them.
        namespace_of: the words after "namespace of" in the help of --namespace; not used if `whole` is True.
    """

    @functools.wraps(command)
    def with_source(
        cluster: Path | None,
        access: ClusterAccess,
        namespace: str | None,
        policy: Path | tuple[Path, ...] | None = None,
        timeout: float = 0,
        kubernetes_version: str | None = None,
        **others: Any,
    ) -> Any:
        if isinstance(policy, tuple):
            others["policies"], policy = policy, None
        if whole and cluster is not None:
            refuse_options(("namespace",), "cannot be used with --cluster, which is read with all namespaces")
        own_limit = 0 if not asks or others.get("batch") else timeout
        with input_faults(), answering(), time_limit(own_limit):
            return command(Source(cluster, access, namespace, policy, timeout, kubernetes_version), **others)

    options: list[Callable[[Any], Any]] = [
        click.option("--cluster", type=FILE, metavar="PATH", help="file or directory of objects; -: standard input"),
        access_options,
        click.option(
            "-n",
            "--namespace",
            metavar="NAME",
            shell_complete=namespaces,
            help=(_FALLBACK if whole else f"namespace of {namespace_of}") + "  [default: the context's, or default]",
        ),
    ]
    if decides:
        options += [_policy_option(compares), VERSION_OPTION, TIMEOUT_OPTION]
    return add_options(with_source, options)  # type: ignore[no-any-return]  # click's decorators lose the function's type


class Seconds(click.FloatRange):
    """A number of seconds for which a timer can run: neither NaN nor infinite."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        return (
            seconds
            if seconds <= TIMEOUT_MAX
            else self.fail(f"{value} is not a number up to {TIMEOUT_MAX:.0f}.", param, ctx)
        )


VERSION_OPTION = click.option(
    "--kubernetes-version",
    type=click.Choice([choice for choice in OPTIONS["kubernetes_version"].choices if choice != "auto"]),
    help="version of kube-scheduler to decide like  [default: that of the policy, or of the cluster]",
)
TIMEOUT_OPTION = click.option(
    "--timeout",
    type=Seconds(min=0),
    default=int(SECONDS),
    show_default=True,
    metavar="SECONDS",
    help="how long an answer may take; 0: no limit",
)


SEED_OPTION = click.option(
    "--seed", type=int, default=0, show_default=True, help="decides between nodes with the same score"
)


def number_option(name: str, text: str, least: int = 1) -> Callable[[Any], Any]:
    """Returns an option for a whole number of `least` or more, which is None if it is not given."""
    return click.option(name, type=click.IntRange(min=least), metavar="N", help=text)


def filenames_option(purpose: str, *, many: bool = True) -> Callable[[Any], Any]:
    """Returns the option -f for manifests, whose help says what is done with their pods, such as `to place`.

    The command gets the files as `filenames`, or one file as `filename`.
    """
    return file_option(
        "-f",
        "--filename",
        "filenames" if many else "filename",
        multiple=many,
        help=f"Pod, Deployment, Job ... {purpose}, in a file or folder; -: standard input. What no placement reads is"
        " not checked here: `kubectl apply --dry-run=server`",
    )


@contextmanager
def input_faults() -> Iterator[None]:
    """Converts errors of the input to ConfigurationError, so that the command exits with 2."""
    try:
        yield
    except (MalformedInput, UnknownPod, UnknownNode) as error:
        raise ConfigurationError([str(error)]) from None
    except OSError as error:
        if error.filename is None or error.errno in _WRITING:
            raise  # the error is about standard output, which has no name, or about the output file
        raise ConfigurationError([os_error_text(error)]) from None


def _policy_option(compares: bool) -> Callable[[Any], Any]:
    default = "kube-scheduler's defaults"
    what = (
        f"policy to compare; twice, or once to compare with {default}"
        if compares
        else f"policy to decide by  [default: {default}]"
    )
    return file_option("--policy", multiple=compares, help=what)


def profiles_of(policy: Path | None, access: ClusterAccess = IN_CLUSTER, version: str | None = None) -> Profiles | None:
    """Returns the profiles of a policy file; None for kube-scheduler's defaults. Raises ConfigurationError.

    Args:
        version: the version of kube-scheduler to decide like; None for that of the policy or the cluster.
    """
    if policy is None and version is None:
        return None
    from extender.app.policies import profiles_of as read_profiles

    return read_profiles(policy, access, version)


def pod_key(argument: str, namespace: str) -> str:
    """Returns `namespace/name` for an argument NAME, NAMESPACE/NAME or pod/NAME. Raises ConfigurationError."""
    *before, name = argument.split("/")
    namespaces = [part for part in before if part not in _POD_PREFIXES]
    if len(namespaces) > 1 or not name:
        raise ConfigurationError([f"{argument}: expected NAME, NAMESPACE/NAME or pod/NAME"])
    return f"{namespaces[-1] if namespaces else namespace}/{name}"


def group_key(argument: str, namespace: str) -> tuple[str, str] | None:
    """Returns (kind, `namespace/name`) for an argument such as podgroup/NAME; None if it is not about a group."""
    *before, name = argument.split("/")
    kinds = [_GROUP_PREFIXES[part] for part in before if part in _GROUP_PREFIXES]
    namespaces = [part for part in before if part not in _GROUP_PREFIXES]
    if not kinds:
        return None
    if len(kinds) > 1 or len(namespaces) > 1 or not name:
        raise ConfigurationError([f"{argument}: expected podgroup/NAME or NAMESPACE/podgroup/NAME"])
    return kinds[0], f"{namespaces[0] if namespaces else namespace}/{name}"


def known_pod(state: ClusterState, key: str) -> Pod:
    """Returns the pod with this `namespace/name`.

    Raises:
        UnknownPod: the pod does not exist; the message suggests the most similar name.
        ClusterError: the pod is not among the pods that this user may read.
    """
    try:
        return state.info(key).pod
    except UnknownPod:
        if state.pods_unread is None:
            raise
        message = f"no pod {key} among the readable ones: {state.pods_unread}; explain its manifest with -f FILE"
        raise ClusterError(message) from None


class Progress:
    """Shows on the terminal how much of an answer is done, if it takes longer than a second."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown_at = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() and (now - self._shown_at >= _PROGRESS_SECONDS or (done == total and total > 1)):
            self._shown_at = now
            show_progress(f"{self._what}: {done} of {total}")
            if done == total:
                show_progress("")


def show_progress(text: str) -> None:
    """Replaces the line of progress on the terminal.

    The control codes that erase the old line are written even if NO_COLOR is set, because they add no color.
    """
    click.echo(f"\r\x1b[K{text}", err=True, nl=False, color=True)


def print_notes(notes: Iterable[str]) -> None:
    """Prints notes to stderr, for commands that cannot print notes as part of the answer."""
    for note in notes:
        click.echo(f"note: {note}", err=True)


def print_answer(
    lines: Iterable[str],
    kind: DocumentKind,
    document: dict[str, Any],
    unread: Sequence[str],
    output: Output,
    template: str,
    **context: object,
) -> None:
    """Prints an answer in the format of `output`. `unread` contains notes on what could not be read."""
    document = with_notes(document, unread)
    if output.is_page:
        from extender.offline import rendering

        say(rendering.file(template, document, **context))
    elif output.is_text:
        say_lines(lines, unread)
    else:
        show(headed(kind, document), output)


_OBJECT_FILES = (".json", ".yaml", ".yml", ".gz")

add_node_option = click.option(
    "--add-node",
    multiple=True,
    shell_complete=nodes,
    metavar="NODE|FILE[=N]",
    help="add N nodes like this one; a file has a Node, and may have its CSINode, ResourceSlices and"
    " CSIStorageCapacities",
)


def add_new_nodes(state: ClusterState, arguments: Sequence[str]) -> list[str]:
    """Adds the nodes that --add-node asks for; returns notes on what is not known about them."""
    from extender.offline.what_if.scenario import Scenario, apply
    from extender.offline.what_if.simulation import Simulation

    return apply(Scenario(add_nodes=list(map(node_template, arguments))), Simulation(state)) if arguments else []


def node_template(argument: str) -> tuple[NodeTemplate, int]:
    """Parses an argument of --add-node; returns what to copy, and how many nodes to add."""
    before, _, digits = argument.rpartition("=")
    number = whole_number(digits)
    name, count = (before, number) if before and number is not None else (argument, 1)
    path = Path(name)
    if path.suffix not in _OBJECT_FILES:  # a node's name may contain a dot, but no equals sign
        if not name or "=" in name:
            raise ConfigurationError([f"--add-node {argument}: expected NODE=N or FILE=N, such as worker-1=3"])
        if not path.is_file():
            return name, count
    from extender.model.node import Node
    from extender.model.workloads import Namespace
    from extender.snapshots.files import load

    objects = [obj for obj in load(path) if not isinstance(obj, Namespace)]  # `load` adds those of capacities
    number_of_nodes = sum(isinstance(obj, Node) for obj in objects)
    if number_of_nodes != 1:
        raise ConfigurationError([f"--add-node {name}: expected a file with one Node, got {number_of_nodes}"])
    return objects, count
