"""Defines the command `extender`: its subcommands, and the exit statuses of errors."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, NoReturn

import click

from extender.cli.certs import certs
from extender.cli.completion import answer_kubectl, completion
from extender.cli.doctor import doctor
from extender.cli.experiment import experiment
from extender.cli.explain import explain
from extender.cli.mcp import mcp
from extender.cli.output import lay_out, os_error_text, write_commands
from extender.cli.process_commands import demo, schedule, serve, view
from extender.cli.record import record, replay, snapshot, translate, upgrade_check
from extender.cli.reference import reference
from extender.cli.rule import rule
from extender.cli.status import status
from extender.cli.what_if import capacity, compare, plan, simulate
from extender.errors import ConfigurationError, ExtenderError, MalformedInput, TooExpensive, explained
from extender.runtime.process import GC_THRESHOLDS, product_commit, product_version
from extender.runtime.text import did_you_mean, printable, with_suggestion

_WIDTH = 120
USAGE_ERROR = 2
FAILURE = 1
NO_ANSWER_IN_TIME = 4
_BY_SIGNAL = 128  # a process that a signal ended has this number plus the signal's as its exit status


class _Commands(click.Group):
    """The subcommands. Wrong usage is reported in the form of all other errors.

    After Ctrl-C a subcommand ends by SIGINT, so that a shell ends the loop around it. If it was computing an answer, it
    says which object took the time, and what is known so far. A subcommand ends by
    SIGPIPE if the program that reads its output, such as `head`, has ended. The exit status is 130 or 141.
    """

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parses the arguments, or prints the help."""
        with _ending_by_signal(), _reporting_usage():
            return super().make_context(*args, **extra)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands under the headings of _SECTIONS."""
        if ctx.command is not cli:
            super().format_commands(ctx, formatter)
            return
        for heading, commands in _SECTIONS.items():
            write_commands(formatter, heading, commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Finds the subcommand that the first argument names; suggests a similar one if there is none."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            ctx.fail(with_suggestion(f"no such command {args[0]}", args[0], self.commands))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with _ending_by_signal(), _reporting_usage():
            return super().invoke(ctx)


@contextmanager
def _ending_by_signal() -> Iterator[None]:
    """Ends the process after Ctrl-C, or if the program that reads its output has ended."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if text := explained("", interrupt):
            click.echo(f"interrupted{printable(text)}", err=True)
        _end_by(signal.SIGINT)
    except BrokenPipeError:
        _end_by(signal.SIGPIPE)


@contextmanager
def _reporting_usage() -> Iterator[None]:
    """Prints how to use the command, and the error, and exits with USAGE_ERROR if the command is used wrongly."""
    try:
        yield
    except click.UsageError as error:
        if error.ctx is not None:
            click.echo(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n", err=True)
        _fail([_usage_fault(error)], USAGE_ERROR)


def _usage_fault(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption):
        return f"no such option {error.option_name}{did_you_mean(error.possibilities or ())}"
    message = " ".join(error.format_message().split())
    return message[:1].lower() + message[1:].removesuffix(".")


def _end_by(number: signal.Signals) -> NoReturn:
    """Ends the process silently by a signal that Python otherwise handles."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(_BY_SIGNAL + number)  # only reached if the parent blocked the signal, or if this process is PID 1


def _print_version(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        click.echo(_version_line())
        context.exit()


def _version_line() -> str:
    return f"extender {product_version()} (commit {product_commit()})"


_version_option = click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and the commit, and exit.",
)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDTH})
@_version_option
def cli() -> None:
    """A kube-scheduler extender and scheduler, which also answers questions about a cluster.

    \b
    Why pods are pending, and what a drain would do; this reads the current context, and writes nothing:
      extender explain
      extender explain shop/web-0
      extender simulate --drain worker-1
    The same without a cluster:
      extender demo cluster > cluster.yaml
      extender explain --cluster cluster.yaml
    A rule of your own, and the webhook that kube-scheduler calls:
      extender rule new team_nodes
      extender serve --kubeconfig ~/.kube/config --policy policy.yaml

    Exit status: 0 if all is well; 3 if the answer is no, such as a pod that does not fit; 2 for wrong usage or input; 4
    if there is no answer within --timeout; 1 for any other failure. The help of a command says more.
    """
    _prepare()


def _prepare() -> None:
    gc.set_threshold(*GC_THRESHOLDS)
    if os.environ.get("NO_COLOR"):  # https://no-color.org
        click.get_current_context().color = False


@click.command()
def version() -> None:
    """Print the version and the commit."""
    click.echo(_version_line())


_SECTIONS: Mapping[str, Sequence[click.Command]] = {
    "About a cluster, live or in a file": (explain, simulate, capacity, plan, compare, view, snapshot, translate, mcp),
    "Rules and recordings": (rule, record, replay, upgrade_check),
    "Device policies": (experiment,),
    "Running it": (demo, serve, schedule, status, doctor, certs),
    "Help": (reference, completion, version),
}
for section in _SECTIONS.values():
    for command in section:
        cli.add_command(command)
lay_out(cli)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDTH})
def kubectl() -> None:
    """The commands that kubectl runs as plugins."""
    _prepare()


_plugin = copy(explain)
_plugin.params = [*explain.params]  # the list is copied, because `explain` itself has no option --version
kubectl.add_command(_version_option(_plugin), "podseat")


def kubectl_podseat() -> None:
    """Runs `extender explain` for `kubectl podseat POD`. It is the console script `kubectl-podseat`."""
    _run(kubectl, ["podseat", *sys.argv[1:]], "kubectl")


def kubectl_complete() -> None:
    """Completes `kubectl podseat ...`. It is the console script that kubectl calls with the words typed so far."""
    answer_kubectl(kubectl, "podseat", sys.argv[1:])


def main() -> None:
    """Runs the command `extender`. Prints one line for each error, and exits with 2 for wrong usage, else with 1."""
    _run(cli, sys.argv[1:], None)


def _run(command: click.Group, arguments: list[str], name: str | None) -> None:
    try:
        command(arguments, name)
    except ConfigurationError as error:
        _fail(error.faults, USAGE_ERROR)
    except MalformedInput as error:
        _fail([str(error)], USAGE_ERROR)
    except TooExpensive as error:
        _fail([f"{error} (--timeout sets the limit)"], NO_ANSWER_IN_TIME)
    except ExtenderError as error:
        _fail([str(error)], FAILURE)
    except OSError as error:
        _fail([os_error_text(error)], FAILURE)
    except MemoryError:
        _fail(["out of memory: the input is too large"], FAILURE)


def _fail(messages: tuple[str, ...] | list[str], status: int) -> None:
    for message in messages:
        click.echo(f"error: {printable(message)}", err=True)
    sys.exit(status)
