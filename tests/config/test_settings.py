"""Settings from three sources, and every fault at once."""

from __future__ import annotations

from pathlib import Path
from threading import TIMEOUT_MAX
from typing import Any

import pytest
from click.testing import CliRunner

from extender.cli.main import cli
from extender.config.settings import COMMANDS, OPTIONS, REMOVED, Command, Option, Settings, load
from extender.errors import ConfigurationError


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "extender.yaml"
    path.write_text("apiVersion: extender/v1\nkind: ExtenderConfiguration\n" + text)
    return path


def faults(config: Path | None = None, environment: dict[str, str] | None = None, **flags: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as raised:
        load(config, environment or {}, flags)
    return [fault.replace(f"{config}: ", "") for fault in raised.value.faults]


def test_nothing_given_is_the_defaults() -> None:
    assert load(None, {}, {}) == Settings()


@pytest.mark.parametrize("command", COMMANDS)
def test_only_loopback_can_call_by_default(command: Command) -> None:
    assert load(None, {}, {"leader_elect": False}, command).bind.rpartition(":")[0] == "127.0.0.1"


def test_a_scheduler_has_its_own_address_and_lease() -> None:
    settings = load(None, {}, {}, "schedule")
    assert (settings.bind, settings.leader_elect) == ("127.0.0.1:8889", True)
    assert (settings.lease_namespace, settings.lease_name) == ("kube-system", "extender-scheduler")


def test_a_setting_of_the_other_command_is_a_fault(tmp_path: Path) -> None:
    """It would have no effect, and that could go unnoticed."""
    config = write(tmp_path, "tlsCert: /etc/tls/tls.crt\n")
    with pytest.raises(ConfigurationError) as raised:
        load(config, {"EXTENDER_CLIENT_CA": "ca.pem"}, {}, "schedule")
    only = "`extender schedule` does not have this setting, only `extender serve` has it"
    assert list(raised.value.faults)[:2] == [f"{config}: tlsCert: {only}", f"EXTENDER_CLIENT_CA: {only}"]
    assert faults(None, {"EXTENDER_SCHEDULER_NAME": "mine"}) == [
        "EXTENDER_SCHEDULER_NAME: `extender serve` does not have this setting, only `extender schedule` has it"
    ]


def test_the_later_source_wins(tmp_path: Path) -> None:
    config = write(tmp_path, "bind: 127.0.0.1:1\nprefix: /file\nlogLevel: debug\n")
    environment = {"EXTENDER_BIND": "127.0.0.1:2", "EXTENDER_PREFIX": "/environment"}
    settings = load(config, environment, {"bind": "127.0.0.1:3"})
    assert (settings.bind, settings.prefix, settings.log_level) == ("127.0.0.1:3", "/environment", "debug")


@pytest.mark.parametrize(
    ("text", "environment", "flags", "name", "value"),
    [
        ("bodyLimit: 64Mi", "64Mi", "64Mi", "body_limit", 67108864),
        ("bodyLimit: 1000", "1000", "1k", "body_limit", 1000),
        ("exemptNamespaces: [a, b]", "a, b", ("a", "b"), "exempt_namespaces", ("a", "b")),
        ("ownNamespace: x\nownLabels: [app=extender]", "", "", "own_labels", ("app=extender",)),
        ("assumedTtlSeconds: 30", "30", "30", "assumed_ttl_seconds", 30.0),
    ],
    ids=lambda value: str(value)[:30],
)
def test_values(tmp_path: Path, text: str, environment: str, flags: Any, name: str, value: object) -> None:
    assert getattr(load(write(tmp_path, text), {}, {}), name) == value
    if environment:
        assert getattr(load(None, {OPTIONS[name].variable: environment}, {}), name) == value
        assert getattr(load(None, {}, {name: flags}), name) == value


def test_every_fault_is_reported_with_its_place(tmp_path: Path) -> None:
    config = write(tmp_path, "bodyLimt: 1\nzzz: 1\nconnections: none\nexemptNamespaces: [a, 3]\n")
    recorded = faults(config, {"EXTENDER_SCORE_SCALE": "maybe", "EXTENDER_BIDN": "x"}, drain_seconds="-1")
    assert recorded == [
        "bodyLimt: unknown setting (did you mean bodyLimit?)",
        "zzz: unknown setting",
        "EXTENDER_BIDN: unknown setting (did you mean EXTENDER_BIND?)",
        "EXTENDER_SCORE_SCALE: expected 'relative' or 'absolute', got 'maybe'",
        "exemptNamespaces[1]: expected a valid string, got 3",
        "connections: expected a valid integer, unable to parse string as an integer, got 'none'",
        "--drain-seconds: expected a value greater than or equal to 0, got '-1'",
    ]


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        ({"bind": "8888"}, "--bind: expected HOST:PORT, like 127.0.0.1:8888 or [::1]:8888, got '8888'"),
        ({"bind": "a:99999"}, "--bind: expected HOST:PORT, like 127.0.0.1:8888 or [::1]:8888, got 'a:99999'"),
        ({"body_limit": "64Mb"}, "--body-limit: expected a number of bytes, like 64Mi, got '64Mb'"),
        ({"body_limit": "0"}, "--body-limit: expected a value greater than 0, got '0'"),
        ({"permit_seconds": "nan"}, "--permit-seconds: expected a finite number, got 'nan'"),
        ({"drain_seconds": "inf"}, "--drain-seconds: expected a finite number, got 'inf'"),
        (
            {"permit_seconds": "1e300"},
            f"--permit-seconds: expected a value less than or equal to {TIMEOUT_MAX:.0f}, got '1e300'",
        ),
        ({"prefix": "a?b"}, "--prefix: expected a URL path of letters, digits and . _ ~ - /, got 'a?b'"),
        ({"own_labels": ("app",)}, "--own-labels[0]: expected KEY=VALUE, got 'app'"),
        ({"own_labels": ["a=b"]}, "ownNamespace: required with ownLabels"),
        ({"prefix": "/ui/"}, "prefix: /ui/ is already used by the extender; choose another path"),
        ({"prefix": "debug/cache"}, "prefix: /debug/cache/ is already used by the extender; choose another path"),
        ({"leader_elect": "true"}, "leaseNamespace: required with leaderElect, unless ownNamespace is set"),
        (
            {"leader_service": "extender", "own_namespace": "x", "own_address": "10.0.0.1", "own_labels": ["a=b"]},
            "leaderService: requires leaderElect, because there is no leader without it",
        ),
        (
            {"lease_follows_calls": "true", "own_namespace": "x"},
            "leaseFollowsCalls: requires leaderElect, because there is no leader without it",
        ),
        (
            {"leader_elect": "true", "leader_service": "extender", "own_namespace": "x"},
            "leaderService: requires ownAddress and ownLabels, which identify the replicas",
        ),
        (
            {"metrics_client_ca": __file__},
            "metricsClientCa: client certificates require HTTPS; set tlsCert, tlsKey and metricsBind too",
        ),
        (
            {"leader_elect": "true", "own_namespace": "x", "cluster": __file__},
            "leaderElect, cluster: leader election needs a live cluster, because a file has no Lease",
        ),
        ({"cluster": "/nowhere"}, "cluster: no such file: '/nowhere'"),
        ({"record": "/nowhere/r"}, "record: no such directory: '/nowhere'"),
        ({"record": "/"}, "record: '/' is not a regular file"),
        ({"client_names": ("a",)}, "clientNames: names are checked only if clientCa is set"),
        ({"tls_cert": __file__}, "tlsCert, tlsKey: HTTPS requires both"),
        ({"client_ca": __file__}, "clientCa: client certificates require HTTPS; set tlsCert and tlsKey too"),
        (
            {"cluster": __file__, "kubeconfig": __file__},
            "kubeconfig, cluster: give only one of them, a live cluster or a file",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_faults(flags: dict[str, Any], fault: str) -> None:
    assert faults(**flags) == [fault]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("bind: [", "line 4: did not find expected node content"),
        ("bind: a:1\nbind: b:1", "line 4: duplicate key bind"),
        ("bind: !!python/object:os.system {}", "line 3: the tag tag:yaml.org,2002:python/object:os.system"),
        ("- a", "line 3: did not find expected key"),
    ],
)
def test_files_that_are_no_settings(tmp_path: Path, text: str, fault: str) -> None:
    [recorded] = faults(write(tmp_path, text))
    assert recorded.startswith(fault)


@pytest.mark.parametrize(
    "text", ["", "[]", "kind: Policy\napiVersion: extender/v1", "apiVersion: extender/v2\nkind: ExtenderConfiguration"]
)
def test_another_document(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    assert faults(tmp_path / "x") == [
        "expected a document with apiVersion: extender/v1 and kind: ExtenderConfiguration"
    ]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert faults(tmp_path / "x") == ["No such file or directory"]


def test_what_kubernetes_sets_for_a_service_called_extender_is_no_fault() -> None:
    environment = {
        "EXTENDER_SERVICE_HOST": "10.0.0.1",
        "EXTENDER_PORT": "tcp://10.0.0.1:80",
        "EXTENDER_PORT_80_TCP": "x",
    }
    assert load(None, environment, {}) == Settings()


def test_every_setting_is_documented() -> None:
    assert all(option.description for option in OPTIONS.values())


def test_a_setting_that_was_removed_is_refused_with_the_reason(tmp_path: Path) -> None:
    config = write(tmp_path, "filterVerb: v1/filter\n")
    assert faults(config, {"EXTENDER_BIND_VERB": "b"}) == [
        "filterVerb: went in 0.2: the path is always filter below prefix",
        "EXTENDER_BIND_VERB: went in 0.2: the path is always bind below prefix",
    ]


@pytest.mark.parametrize("option", REMOVED, ids=lambda option: option.name)
@pytest.mark.parametrize("command", COMMANDS)
def test_the_flag_of_a_removed_setting_is_refused_with_the_reason(command: Command, option: Option) -> None:
    flag = CliRunner().invoke(cli, [command, f"{option.flag}=1"])
    assert flag.exit_code == 2
    assert f"{option.flag}: {option.description}" in flag.output
    assert option.name not in OPTIONS
