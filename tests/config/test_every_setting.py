"""Every setting, given by every source to `serve` and to `schedule`, is what /configz of the process shows."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from extender.config.settings import API_VERSION, COMMANDS, KIND, OPTIONS, Command, Option, options_of
from tests.cluster.fake_api import fake_api
from tests.running import EXTENDER
from tests.stock.process import Process, free_port

pytestmark = pytest.mark.slow

SOURCES = ("file", "environment", "flags")

# Another value than the default for each setting whose value is no number, no path and no switch; and a quick end.
VALUES: dict[str, Any] = {
    "context": "fake",
    "as_": "jo",
    "as_group": ["g", "h"],
    "feature_gates": "DRAFractionalCapacityRange=true",
    "kubernetes_version": "1.38",
    "prefix": "/p",
    "score_scale": "absolute",
    "filter_answer": "best",
    "exempt_namespaces": ["a", "b"],
    "own_namespace": "ours",
    "own_labels": ["app=extender", "tier=a"],
    "lease_namespace": "leases",
    "lease_name": "lease",
    "leader_service": "leader",
    "own_address": "10.0.0.7",
    "watch_kinds": ["Node", "Pod"],
    "client_names": ["localhost"],
    "log_format": "text",
    "log_level": "debug",
    "scheduler_name": "mine",
    "on_rule_failure": "ignore",
    "drain_seconds": 0.5,
}
# Settings of one process that contradict others; each has a process of its own.
APART = {"cluster"}
ADDRESSES = {"bind", "metrics_bind"}


class Certificates:
    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        self.tls_cert = directory / "pair.pem"
        authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(self.tls_cert))
        self.tls_key = self.tls_cert
        self.client_ca = self.metrics_client_ca = directory / "ca.pem"
        authority.cert_pem.write_to_path(str(self.client_ca))

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.client_ca))
        context.load_cert_chain(self.tls_cert)
        return context


def value_of(option: Option, command: Command) -> Any:
    """Another value than the default."""
    default = option.defaults[command]
    if option.name in VALUES:
        return VALUES[option.name]
    if isinstance(default, bool):
        return not default
    assert isinstance(default, int | float), option.name
    return default + (0.5 if isinstance(default, float) else 1)


def text_of(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def arguments(source: str, values: dict[str, Any], directory: Path) -> tuple[list[str], dict[str, str]]:
    """The flags and the environment that give these settings by one source."""
    options = [(OPTIONS[name], value) for name, value in values.items()]
    if source == "environment":
        return [], {option.variable: text_of(value) for option, value in options}
    if source == "file":
        path = directory / "settings.yaml"
        document = {"apiVersion": API_VERSION, "kind": KIND, **{option.key: value for option, value in options}}
        path.write_text(yaml.safe_dump(document))
        return ["--config", str(path)], {}
    each = [(option, one) for option, value in options for one in (value if option.many else [value])]
    return [flag_of(option, value) for option, value in each], {}


def flag_of(option: Option, value: Any) -> str:
    if isinstance(value, bool):
        return option.flag if value else option.negative_flag
    return f"{option.flag}={text_of(value)}"


def configz(command: Command, flags: list[str], variables: dict[str, str], directory: Path, port: int, tls: Any) -> Any:
    """What /configz of such a process shows."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EXTENDER_")}
    process = Process(command, [EXTENDER, command, *flags], directory / "log", {**clean, **variables})
    shown: list[Any] = []

    def answered() -> bool:
        connection = (
            http.client.HTTPSConnection("localhost", port, context=tls)
            if tls
            else http.client.HTTPConnection("localhost", port)
        )
        try:
            connection.request("GET", "/configz")
            shown.append(json.loads(connection.getresponse().read())[API_VERSION])
        except OSError:
            return False
        finally:
            connection.close()
        return True

    try:
        process.wait_until(answered)
    finally:
        process.stop()
    return shown[-1]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_setting_of_every_source_is_in_force(command: Command, source: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    policy = tmp_path / "policy.yaml"
    policy.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    ports = {name: free_port() for name in ADDRESSES}
    with fake_api() as api:
        given: dict[str, Any] = {
            "kubeconfig": str(api.kubeconfig(tmp_path)),
            "policy": str(policy),
            "record": str(tmp_path / "record.jsonl"),
            **{name: f"127.0.0.1:{port}" for name, port in ports.items()},
            **{name: str(path) for name, path in vars(certificates).items()},
        }
        settings = [option for option in options_of(command) if option.name not in APART]
        values = {option.name: given.get(option.name) or value_of(option, command) for option in settings}
        flags, variables = arguments(source, values, tmp_path)
        tls = certificates.context() if command == "serve" else None
        shown = configz(command, flags, variables, tmp_path, ports["bind"], tls)
    expected = {OPTIONS[name].key: value for name, value in values.items()}
    defaults = {option.key: option.defaults[command] for option in options_of(command) if option.name in APART}
    assert shown == {**defaults, **expected}


@pytest.mark.parametrize("source", SOURCES)
def test_settings_that_contradict_others_are_in_force_alone(source: str, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("{apiVersion: v1, kind: Node, metadata: {name: a1}}")
    port = free_port()
    values = {"bind": f"127.0.0.1:{port}", "cluster": str(cluster)}
    flags, variables = arguments(source, values, tmp_path)
    shown = configz("serve", flags, variables, tmp_path, port, None)
    assert {name: shown[OPTIONS[name].key] for name in values} == values
