"""The command line: what it prints and how it exits. Processes, for exit codes and streams are the point."""

from __future__ import annotations

import configparser
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import trustme
from click.testing import CliRunner

from extender.cli.explain import explain
from extender.cli.main import cli
from extender.cli.process_commands import settings_options
from extender.config.settings import COMMANDS, Command, options_of
from extender.runtime.process import product_commit, product_version
from tests.cli.commands import extender
from tests.distribution.release import ROOT
from tests.stock.process import free_port

pytestmark = pytest.mark.processes

EXAMPLE = Path(__file__).parents[2] / "extender/offline/example.yaml"


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own, for a command that would start servers in this one."""
    code = "import sys; from extender.cli.main import main; sys.argv[0] = 'extender'; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)


def test_help_loads_nothing_heavy() -> None:
    """NumPy alone takes three times as long as the help."""
    code = "import sys, extender.cli.main; print({'numpy', 'flask', 'kubernetes'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert loaded.stdout == "set()\n"


def test_help_teaches_by_example() -> None:
    printed = extender("serve", "--help")
    assert printed.returncode == 0
    assert "extender serve --kubeconfig ~/.kube/config --bind 127.0.0.1:8888" in printed.stdout


def _paths(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield from _paths(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]


@pytest.mark.parametrize("path", [path for path in _paths(cli) if path != ("version",)], ids=" ".join)
def test_the_help_of_a_command_has_an_example_and_its_exit_status(path: tuple[str, ...]) -> None:
    printed = CliRunner().invoke(cli, [*path, "--help"]).output
    named = '"mcp"' if path == ("mcp",) else f"extender {' '.join(path)}"
    assert named in printed.partition("\n\n")[2]
    assert "Exit status: " in printed or path in (("reference",), ("completion",), ("demo",))


def test_the_help_lists_every_command_once() -> None:
    printed = CliRunner().invoke(cli, ["--help"]).output
    assert [len(re.findall(rf"^  {name}  ", printed, re.MULTILINE)) for name in cli.commands] == [1] * len(cli.commands)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_setting_has_an_option_with_its_help(command: Command) -> None:
    printed = " ".join(extender(command, "--help").stdout.split())
    for option in options_of(command):
        assert f"{option.flag} " in printed
        assert option.description in printed.replace("- ", "-") or option.description in printed


@pytest.mark.parametrize("argument", ["version", "--version"])
def test_the_version_and_the_commit_are_printed(argument: str) -> None:
    assert extender(argument).stdout == f"extender {product_version()} (commit {product_commit()})\n"


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        pytest.param(["serve", "--bnd", "x"], 2, "no such option --bnd (did you mean --bind", id="an unknown option"),
        pytest.param(["srve"], 2, "no such command srve (did you mean serve?)", id="an unknown command"),
        pytest.param(
            ["serve", "--score-scale", "maybe"], 2, "'maybe' is not one of 'relative', 'absolute'", id="a closed set"
        ),
        pytest.param(["serve", "--bind", "x"], 2, "error: --bind: expected HOST:PORT", id="a setting"),
        pytest.param(["schedule", "--scheduler-name", ""], 2, "error: --scheduler-name: ", id="no name"),
        pytest.param(["serve", "--config", "/none"], 2, "error: /none: No such file or directory", id="no file"),
        pytest.param(["serve", "--cluster", os.devnull], 2, f"error: {os.devnull}: the file is empty", id="no objects"),
        pytest.param(["explain", "a", "b"], 2, "unexpected extra argument (b)", id="two pods"),
        pytest.param(["reference", "x"], 2, "invalid value for 'TOPIC': 'x' is not one of", id="an unknown topic"),
        pytest.param(["completion"], 2, "missing argument 'SHELL'", id="no shell"),
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], status: int, error: str) -> None:
    printed = extender(*arguments)
    assert printed.returncode == status
    assert error in printed.stderr
    assert "Traceback" not in printed.stderr
    assert printed.stdout == ""


@pytest.mark.parametrize("authority", [(), ("--client-ca", str(EXAMPLE))], ids=["no key", "no authority"])
def test_faulty_certificates_are_refused_before_anything_is_served(authority: tuple[str, ...], tmp_path: Path) -> None:
    pair, issued = tmp_path / "pair.pem", trustme.CA().issue_cert("extender")
    issued.private_key_and_cert_chain_pem.write_to_path(str(pair))
    given = pair if authority else EXAMPLE
    printed = process("serve", "--cluster", str(EXAMPLE), "--tls-cert", str(given), "--tls-key", str(given), *authority)
    faults = [line for line in printed.stderr.splitlines() if line.startswith("error: ")]
    pairs = f"tlsCert, tlsKey: {EXAMPLE} and {EXAMPLE} are not a PEM certificate and its private key"
    fault = f"clientCa: {EXAMPLE} contains no PEM certificate" if authority else pairs
    assert (printed.returncode, len(faults)) == (2, 1)
    assert faults[0].startswith(f"error: {fault}")
    assert "Traceback" not in printed.stderr


def test_a_taken_address_ends_serve_with_what_to_do() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        printed = process("serve", "--cluster", str(EXAMPLE), "--bind", address)
    assert printed.returncode == 1
    assert printed.stderr.splitlines()[-1].startswith(
        f"error: cannot listen on {address}: Address already in use; choose"
    )
    assert "Traceback" not in printed.stderr


@pytest.mark.parametrize("own", [True, False], ids=["by itself", "by another"])
def test_a_taken_metrics_address_ends_serve_with_one_line(own: bool) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{free_port() if own else other.getsockname()[1]}"
        bind = address if own else "127.0.0.1:0"
        printed = process("serve", "--cluster", str(EXAMPLE), "--bind", bind, "--metrics-bind", address)
    assert printed.returncode == 1
    assert (
        printed.stderr.splitlines()[-1]
        == f"error: cannot listen on {address}: Address already in use; choose another, or end the process that has it"
    )
    assert "Traceback" not in printed.stderr


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}"
ON_EXAMPLE = ["--cluster", str(EXAMPLE)]
READ = [
    ["--help"],
    ["explain", *ON_EXAMPLE],
    ["explain", "--batch"],
    ["snapshot", *ON_EXAMPLE, "-o", "-"],
    ["explain", "-f", "-", *ON_EXAMPLE, "-o", "html"],
    ["replay", str(Path(__file__).parents[1] / "recordings/served.jsonl.gz"), "--steps"],
    ["reference", "metrics"],
    ["demo", "filter"],
    ["explain", "--help"],
    ["version"],
    ["explain", *ON_EXAMPLE, "-o", "json"],
    ["simulate", *ON_EXAMPLE],
    ["capacity", "-f", "-", *ON_EXAMPLE],
    ["snapshot", "--cluster", "-", "-o", "-"],
    ["snapshot", *ON_EXAMPLE, "-o", "/dev/stdout"],
    ["doctor", "--url", "http://127.0.0.1:1"],
]


@pytest.mark.parametrize(
    "arguments",
    [
        *READ[:4],
        *(pytest.param(arguments, marks=pytest.mark.slow) for arguments in READ[4:]),
    ],
    ids=" ".join,
)
def test_a_reader_that_has_seen_enough_ends_a_command_as_other_tools(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", "from extender.cli.main import main; main()", *arguments]
    given = '{"pod": {}}' if "--batch" in arguments else POD
    with os.fdopen(writer, "wb") as closed:
        printed = subprocess.run(
            command, stdout=closed, stderr=subprocess.PIPE, timeout=120, check=False, input=given.encode()
        )
    assert (printed.returncode, printed.stderr) == (-signal.SIGPIPE, b"")


INTERRUPTING = """
import os, signal
from extender import predicate

@predicate
def ctrl_c(pod, node):
    os.kill(os.getpid(), signal.SIGINT)
"""
INTERRUPTING_POLICY = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {filter: {enabled: [{name: "rules:ctrl_c"}]}}}]
"""


PENDING = "ml/recommend-7f6d-v4nzs"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explain", PENDING, "--policy", "policy.yaml"], f"interrupted: pod {PENDING} took the time\n"),
        (
            ["simulate", "--policy", "policy.yaml"],
            "interrupted: pod data/postgres-standby-0 took the time; 0 of 6 pods are placed\n",
        ),
        (["rule", "test", "rules.py"], ""),
    ],
)
def test_ctrl_c_ends_a_command_by_sigint_and_says_what_took_the_time(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    """A shell then gets 130 as the exit status. A rule sends the signal, so that it arrives during the work."""
    (tmp_path / "rules.py").write_text(INTERRUPTING)
    (tmp_path / "policy.yaml").write_text(INTERRUPTING_POLICY)
    command = [sys.executable, "-c", "from extender.cli.main import main; main()", *arguments, *ON_EXAMPLE]
    ended = subprocess.run(
        command,
        capture_output=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's job ignores it
    )
    assert (ended.returncode, ended.stdout, ended.stderr.decode()) == (-signal.SIGINT, b"", said)


CTRL_C_DURING_IMPORT = """
import importlib.metadata, os, signal, sys

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
importlib.metadata.EntryPoint("command", sys.argv.pop(1), "console_scripts").load()()
"""


def _console_scripts() -> list[str]:
    """Returns the functions that the console scripts call, as MODULE:FUNCTION."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options.entry_points"]["console_scripts"].strip().splitlines()
    return [line.partition(" = ")[2] for line in lines]


@pytest.mark.parametrize("script", _console_scripts())
@pytest.mark.parametrize(("ignored", "status"), [(False, -signal.SIGINT), (True, 0)])
def test_ctrl_c_ends_a_command_that_is_still_importing_unless_its_shell_ignores_it(
    script: str, ignored: bool, status: int
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", CTRL_C_DURING_IMPORT, script, *(() if "complete" in script else ("--help",))],
        capture_output=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL),
    )
    assert (ended.returncode, ended.stderr) == (status, b"")


def test_ctrl_c_is_handled_by_python_again_once_the_commands_are_imported() -> None:
    code = "import signal; from extender.cli.start import _commands; _commands(); print(signal.getsignal(2).__name__)"
    started = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (started.stdout, started.stderr) == ("default_int_handler\n", "")


def test_demo_prints_nothing_but_the_error_if_its_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        ended = process("demo", "--bind", address)
    fault = f"cannot listen on {address}: Address already in use; choose another, or end the process that has it"
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", f"error: {fault}\n")


@pytest.mark.parametrize("arguments", [["explain", *ON_EXAMPLE], ["reference", "metrics"], ["demo", "cluster"]])
def test_a_full_disk_is_a_failure_and_no_wrong_usage(arguments: list[str]) -> None:
    command = [sys.executable, "-c", "from extender.cli.main import main; main()", *arguments]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (1, "error: No space left on device\n")


def test_a_snapshot_that_does_not_fit_on_a_device_names_it() -> None:
    ended = extender("snapshot", *ON_EXAMPLE, "-o", "/dev/full")
    assert (ended.returncode, ended.stderr) == (1, "error: /dev/full: No space left on device\n")


def test_a_file_that_grows_too_large_is_a_failure_too(tmp_path: Path) -> None:
    script, output = Path(sys.executable).parent / "extender", tmp_path / "cluster.json"
    command: list[str | Path] = [
        "/bin/sh",
        "-c",
        'ulimit -f 1; exec "$0" "$@"',
        script,
        "snapshot",
        *ON_EXAMPLE,
        "-o",
        output,
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (1, f"error: {output}: File too large\n")


UNREADABLE = "/proc/self/mem"  # it can be opened, but the first read fails, as of a damaged disk


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "--cluster", UNREADABLE],
        ["explain", *ON_EXAMPLE, "-f", UNREADABLE],
        ["replay", UNREADABLE],
        ["snapshot", *ON_EXAMPLE, "-o", "-", "--redact", "--redact-key", UNREADABLE],
    ],
    ids=" ".join,
)
def test_a_failed_read_is_reported_with_the_file_as_faulty_input(arguments: list[str]) -> None:
    ended = extender(*arguments)
    assert (ended.returncode, ended.stderr) == (2, f"error: {UNREADABLE}: Input/output error\n")


def test_a_closed_standard_input_is_faulty_input() -> None:
    script = Path(sys.executable).parent / "extender"
    command: list[str | Path] = ["/bin/sh", "-c", 'exec "$0" explain --cluster - <&-', script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (2, "error: -: standard input is closed\n")


def test_every_fault_is_a_line() -> None:
    printed = extender("serve", "--bind", "x", "--body-limit", "y", "--connections", "0")
    assert [line.split(":")[:2] for line in printed.stderr.splitlines()] == [
        ["error", " --bind"],
        ["error", " --body-limit"],
        ["error", " --connections"],
    ]


def test_options_given_and_not_given(tmp_path: Path) -> None:
    seen: dict[str, object] = {}

    @click.command()
    @settings_options("serve")
    def probe(**flags: object) -> None:
        seen.update({name: value for name, value in flags.items() if value not in (None, ())})

    arguments = ["--config", str(tmp_path), "--exempt-namespaces", "a", "--exempt-namespaces", "b", "--bind", "h:1"]
    probe.main(arguments, standalone_mode=False)
    assert seen == {"config": tmp_path, "exempt_namespaces": ("a", "b"), "bind": "h:1"}


def test_all_commands_are_helped() -> None:
    assert isinstance(cli, click.Group)
    for command in cli.commands.values():
        assert command.help


def test_the_plugin_of_kubectl_calls_itself_so() -> None:
    code = "from extender.cli.main import kubectl_podseat; kubectl_podseat()"
    printed = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, timeout=120)
    assert (printed.returncode, printed.stdout.splitlines()[0]) == (0, "Usage: kubectl podseat [OPTIONS] [POD]")


def test_the_plugin_of_kubectl_prints_the_version_that_a_report_asks_for() -> None:
    code = "from extender.cli.main import kubectl_podseat; kubectl_podseat()"
    printed = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, timeout=120)
    assert printed.stdout == f"extender {product_version()} (commit {product_commit()})\n"
    assert "--version" not in [option for param in explain.params for option in param.opts]


def on_terminal(no_color: str, *arguments: str) -> str:
    """Runs the command on a terminal; returns all that the terminal shows."""
    code = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    return subprocess.run(
        [sys.executable, "-c", code, Path(sys.executable).parent / "extender", *arguments],
        env={**os.environ, "NO_COLOR": no_color, "KUBECONFIG": "/none"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    ).stdout.decode()


@pytest.mark.parametrize(("no_color", "colored"), [("1", False), ("", True)])
def test_no_colors_are_printed_if_the_environment_says_so(no_color: str, colored: bool) -> None:
    """doctor is asked on a terminal, because elsewhere there are no colours."""
    shown = on_terminal(no_color, "doctor", "--policy", "/none")
    assert "policy" in shown
    assert ("\x1b[" in shown) == colored


@pytest.mark.parametrize("no_color", ["1", ""])
def test_the_progress_is_erased_before_the_answer(no_color: str) -> None:
    shown = on_terminal(no_color, "explain", *ON_EXAMPLE)
    assert "pending pods: 6 of 6\r\x1b[K6 pending pods: 2 blocked (2 causes)" in shown


WINDOWS = """
import ctypes, os, signal, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for module, names in ((signal, ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGPIPE")), (os, ("sched_setaffinity", "killpg"))):
    for name in names:
        delattr(module, name)
load = ctypes.CDLL.__init__
def refuse(self, name, *arguments, **options):
    if name is None:
        raise TypeError("argument of type 'NoneType' is not iterable")
    load(self, name, *arguments, **options)
ctypes.CDLL.__init__ = refuse
sys.argv = ["extender", "explain", "ml/recommend-7f6d-v4nzs", "--cluster", sys.argv[1]]
from extender.cli.main import main
main()
"""


def test_a_question_about_a_file_is_answered_without_what_windows_lacks() -> None:
    command = [sys.executable, "-c", WINDOWS, str(EXAMPLE)]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (printed.returncode, printed.stderr) == (3, "")
    assert printed.stdout.startswith("pod ml/recommend-7f6d-v4nzs")
