"""`extender schedule` before it schedules: help, and wrong usage in one line each."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.cli.commands import extender
from tests.running import schedule
from tests.stock.process import free_port


def test_help_teaches_by_example() -> None:
    printed = extender("schedule", "--help")
    assert printed.returncode == 0
    assert "extender schedule --kubeconfig ~/.kube/config --scheduler-name mine --no-leader-elect" in printed.stdout


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """One that leads nowhere, but can be read."""
    path = tmp_path / "kubeconfig"
    path.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {}}],"
        f" clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{free_port()}'}}}}],"
        " contexts: [{name: c, context: {cluster: c, user: u}}]}"
    )
    return path


def test_a_missing_kubeconfig_is_refused() -> None:
    printed = extender("schedule", "--kubeconfig", "/no/such/file", "--no-leader-elect")
    assert (printed.returncode, printed.stderr) == (2, "error: kubeconfig: no such file: '/no/such/file'\n")


def test_a_lease_without_a_namespace_is_refused(kubeconfig: Path) -> None:
    printed = extender("schedule", "--kubeconfig", str(kubeconfig), "--lease-namespace", "")
    assert printed.returncode == 2
    assert "leaseNamespace: required with leaderElect" in printed.stderr


def test_a_name_that_no_profile_has_is_an_error(kubeconfig: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    profiles = [{"schedulerName": "one"}, {"schedulerName": "two"}]
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    policy.write_text(json.dumps({**header, "profiles": profiles}))
    flags = ("--kubeconfig", str(kubeconfig), "--policy", str(policy), "--no-leader-elect")
    printed = extender("schedule", *flags, "--scheduler-name", "three")
    expected = "error: --scheduler-name three: the policy has profiles for one, two\n"
    assert (printed.returncode, printed.stderr) == (2, expected)


def test_a_taken_port_ends_schedule_with_one_line(kubeconfig: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        printed = extender("schedule", "--kubeconfig", str(kubeconfig), "--no-leader-elect", "--bind", address)
    assert (printed.returncode, printed.stderr) == (
        1,
        f"error: cannot listen on {address}: Address already in use; choose another, or end the process that has it\n",
    )


@pytest.mark.processes
def test_the_log_says_once_what_a_start_waits_for(kubeconfig: Path, tmp_path: Path) -> None:
    with schedule(kubeconfig, tmp_path, wait=False) as running:
        process = running.process

        def count(text: str) -> int:
            return process.log.read_text().count(text)

        process.wait_until(lambda: count("not scheduling yet check=cache reason='waiting for the first list of ") > 0)
        failed = count("cannot be reached")
        process.wait_until(lambda: count("cannot be reached") > failed)
        assert count("not scheduling yet ") == 1
