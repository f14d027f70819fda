"""`extender doctor` names each fault that is planted, and nothing where there is none."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from click.testing import CliRunner

from extender.app.doctor import tls_advice
from extender.cli.main import cli
from extender.errors import ConfigurationError
from tests.app.scripted_cluster import (
    Table,
    allowing,
    healthy_cluster,
    healthy_extender,
    is_needed,
    kubeconfig,
    scripted,
    server_context,
)
from tests.running import extender_entry
from tests.stock.control_plane import ControlPlane
from tests.stock.process import free_port

DOCS = Path(__file__).parents[2] / "docs" / "doctor.md"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/extender-system/leases/extender"
ACCOUNT = ("--account", "extender-system/extender")


class Installation:
    """A cluster, an extender and a scheduler's configuration that are all right; a test spoils one thing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster, self.extender = healthy_cluster(), healthy_extender()
        self.clock_seconds = 0.0
        self.entry: dict[str, Any] = {}
        self.config: dict[str, Any] = {"percentageOfNodesToScore": 100}
        self.policy = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        self.flags: list[str] = [*ACCOUNT]
        self.tls: Any = None
        self.scheme = "http"

    @contextmanager
    def running(self) -> Iterator[list[str]]:
        """Runs the cluster and the extender; yields the flags that `extender doctor` needs to examine them."""
        with ExitStack() as stack:
            api = stack.enter_context(scripted(self.cluster, clock_seconds=self.clock_seconds))
            port = stack.enter_context(scripted(self.extender, tls=self.tls))
            entry = {**extender_entry(f"{self.scheme}://127.0.0.1:{port}/scheduler"), **self.entry}
            config = {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "extenders": [entry],
                **self.config,
            }
            (self.folder / "scheduler.yaml").write_text(yaml.safe_dump(config))
            (self.folder / "policy.yaml").write_text(self.policy)
            flags = ["--kubeconfig", str(kubeconfig(self.folder, api)), "--policy", str(self.folder / "policy.yaml")]
            yield [*flags, "--scheduler-config", str(self.folder / "scheduler.yaml"), *self.flags]

    def examined(self) -> list[dict[str, str]]:
        with self.running() as flags:
            result = CliRunner().invoke(cli, ["doctor", *flags, "-o", "json"], catch_exceptions=False)
        findings: list[dict[str, str]] = json.loads(result.stdout)["findings"]
        assert result.exit_code == int(any(each["level"] == "fail" for each in findings))
        return findings


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


def lease(seconds_ago: float, holder: str = "a") -> Table:
    renewed = (datetime.now(UTC) - timedelta(seconds=seconds_ago)).isoformat().replace("+00:00", "Z")
    return {"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}}


def test_nothing_is_wrong(installation: Installation) -> None:
    installation.cluster[f"GET {LEASE}"] = lease(1)
    installation.flags += ["--lease", "extender-system/extender"]
    assert [each for each in installation.examined() if each["level"] != "ok"] == []


@pytest.mark.parametrize(
    ("entry", "spec", "level"),
    [
        pytest.param({}, {}, "warn", id="they wait for themselves"),
        pytest.param({}, {"schedulerName": "default-scheduler"}, "warn", id="the default by its name"),
        pytest.param({"ignorable": True}, {}, "ok", id="ignorable"),
        pytest.param({"managedResources": [{"name": "example.com/ruled"}]}, {}, "ok", id="other pods are ruled"),
        pytest.param({}, {"schedulerName": "system-scheduler"}, "ok", id="another scheduler places them"),
        pytest.param({"filterVerb": "", "preemptVerb": "", "bindVerb": ""}, {}, "ok", id="only prioritize"),
    ],
)
def test_the_extenders_own_pods_must_not_wait_for_it(
    installation: Installation, entry: dict[str, Any], spec: dict[str, Any], level: str
) -> None:
    """The Deployments of other accounts do not count."""
    containers = [{"name": "extender", "resources": {"requests": {"cpu": "500m"}}}]
    ruled = [{"name": "app", "resources": {"limits": {"example.com/ruled": "1"}}}]
    templates = [
        {"spec": {"serviceAccountName": "extender", "containers": containers, **spec}},
        {"spec": {"serviceAccountName": "other", "containers": ruled}},
    ]
    deployments = {"items": [{"spec": {"template": template}} for template in templates]}
    installation.cluster["GET /apis/apps/v1/namespaces/extender-system/deployments"] = deployments
    installation.entry = entry
    (found,) = [each for each in installation.examined() if each["check"] == "own-pods"]
    assert found["level"] == level


@pytest.mark.parametrize(
    ("reported", "policy_version", "level"),
    [
        pytest.param("v1.37.1", None, "fail", id="an older cluster"),
        pytest.param("v1.38.0", None, "ok", id="the cluster's version"),
        pytest.param("v1.37.1", "1.38", "ok", id="the policy's version"),
        pytest.param("v1.38.0", "1.37", "fail", id="an older version in the policy"),
        pytest.param("v1.40.0", None, "ok", id="a newer cluster"),
    ],
)
def test_the_configuration_is_read_as_kube_scheduler_of_the_cluster_does(
    installation: Installation, reported: str, policy_version: str | None, level: str
) -> None:
    """The field is known since 1.38."""
    installation.cluster["GET /version"] = {"gitVersion": reported, "minor": reported.split(".")[1]}
    installation.config["percentageOfPlacementsToScore"] = 50
    named = {} if policy_version is None else {"kubernetesVersion": policy_version}
    gates = {"featureGates": {"TopologyAwareWorkloadScheduling": True, "GenericWorkload": True}}
    installation.policy = yaml.safe_dump({**yaml.safe_load(installation.policy), **gates, **named})
    (found,) = [each for each in installation.examined() if each["check"] == "scheduler-config"]
    assert found["level"] == level, found


def set_in(table: str, key: str, value: Any) -> Callable[[Installation], None]:
    return lambda installation: getattr(installation, table).__setitem__(key, value)


def set_to(attribute: str, value: Any) -> Callable[[Installation], None]:
    return lambda installation: setattr(installation, attribute, value)


def with_flags(*flags: str) -> Callable[[Installation], None]:
    return lambda installation: installation.flags.extend(flags)


def answers_too_late(installation: Installation) -> None:
    installation.entry["httpTimeout"] = "1ms"
    installation.extender["POST /scheduler/filter"] = lambda _: time.sleep(0.2)


REVIEW = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews"
FAULTS = [
    pytest.param(
        set_in("cluster", "GET /version", (503, {"message": "starting"})),
        "fail",
        "api-server",
        "starting",
        id="API server",
    ),
    pytest.param(
        set_in("cluster", "GET /version", {"gitVersion": "v1.30.2", "minor": "30+"}),
        "warn",
        "version",
        "1.30.2",
        id="version",
    ),
    pytest.param(set_to("clock_seconds", 90.0), "warn", "clock", r"(89|90|91) s behind", id="clock behind"),
    pytest.param(set_to("clock_seconds", -90.0), "warn", "clock", r"(89|90|91) s ahead", id="clock ahead"),
    pytest.param(
        set_in("cluster", "GET /apis/resource.k8s.io/v1", (404, {})),
        "warn",
        "served-apis",
        r"deviceclasses \(resource",
        id="API",
    ),
    pytest.param(
        set_in("cluster", REVIEW, allowing(lambda a: is_needed(a) and a["resource"] != "poddisruptionbudgets")),
        "fail",
        "rights",
        r"extender-system/extender may not list, watch poddisruptionbudgets\.policy",
        id="right to read",
    ),
    pytest.param(
        set_in("cluster", REVIEW, allowing(lambda a: is_needed(a) and a.get("subresource") != "binding")),
        "fail",
        "rights",
        "create pods/binding",
        id="right to bind",
    ),
    pytest.param(
        with_flags("--preempt-for-rules"),
        "fail",
        "rights",
        r"may not delete pods$",
        id="right to evict",
    ),
    pytest.param(
        set_in("cluster", REVIEW, allowing(lambda _: True)),
        "warn",
        "too-many-rights",
        "get secrets",
        id="an administrator",
    ),
    pytest.param(with_flags("--lease", "extender-system/extender"), "fail", "lease", "does not exist", id="no lease"),
    pytest.param(
        set_in("cluster", "GET /apis/scheduling.k8s.io", {"versions": [{"groupVersion": "scheduling.k8s.io/v1"}]}),
        "ok",
        "version",
        "",
        id="no pod groups",
    ),
    pytest.param(
        set_to("policy", "kind: Policy\napiVersion: v1\npredicates: [{name: Nope}]\n"),
        "fail",
        "policy",
        "Nope",
        id="policy",
    ),
    pytest.param(
        set_to(
            "policy",
            "kind: KubeSchedulerConfiguration\napiVersion: kubescheduler.config.k8s.io/v1\n"
            "profiles: [{plugins: {filter: {enabled: [{name: 'no_such_module:rule'}]}}}]\n",
        ),
        "fail",
        "policy",
        "no_such_module",
        id="rule",
    ),
    pytest.param(
        set_in("config", "profiles", {"schedulerName": "x"}),
        "fail",
        "scheduler-config",
        "profiles: expected a valid array",
        id="profiles that are no list",
    ),
    pytest.param(
        set_in("config", "apiVersion", "kubescheduler.config.k8s.io/v1beta3"),
        "fail",
        "scheduler-config",
        "apiVersion: expected kubescheduler.config.k8s.io/v1, got",
        id="version",
    ),
    pytest.param(
        set_in("config", "apiVersion", ""), "fail", "scheduler-config", "apiVersion: required", id="no version"
    ),
    pytest.param(
        set_in("config", "leaderElection", {"leaseDuration": "5s"}),
        "fail",
        "scheduler-config",
        r"leaderElection.leaseDuration: must be greater than renewDeadline \(10s\), got 5s",
        id="short lease",
    ),
    pytest.param(
        set_in("entry", "tlsConfig", {"caFile": "/nonexistent/ca.crt"}),
        "fail",
        "tls-files",
        "tlsConfig.caFile: /nonexistent/ca.crt: No such file",
        id="missing CA",
    ),
    pytest.param(
        set_in("entry", "tlsConfig", {"caData": "eA=="}), "fail", "tls-files", "caData: not a certificate", id="CA"
    ),
    pytest.param(
        set_in("entry", "urlPrefix", "/scheduler"), "fail", "extenders", "urlPrefix: expected a URL", id="relative URL"
    ),
    pytest.param(
        set_in("config", "profiles", [{"pluginConfig": [{"name": "NodeResourceFit"}]}]),
        "warn",
        "scheduler-config",
        r"no plugin 'NodeResourceFit' is known here",
        id="plugin",
    ),
    pytest.param(set_in("config", "extenders", []), "fail", "extenders", "has no extender", id="no extender"),
    pytest.param(
        set_in("entry", "weight", 0),
        "fail",
        "scheduler-config",
        r"extenders\[0\].weight: expected a positive",
        id="weight",
    ),
    pytest.param(
        set_in("entry", "urlPrefx", "x"), "fail", "scheduler-config", r"extenders\[0\].urlPrefx", id="misspelt field"
    ),
    pytest.param(set_in("entry", "nodeCacheCapable", False), "warn", "node-cache-capable", "141781", id="whole nodes"),
    pytest.param(set_in("entry", "ignorable", True), "warn", "ignorable", "without its rules", id="ignorable"),
    pytest.param(set_in("entry", "ignorable", False), "ok", "ignorable", "all pods stay pending", id="not ignorable"),
    pytest.param(
        set_in("entry", "managedResources", [{"name": "example.com/gpu"}]),
        "ok",
        "ignorable",
        "pods that request example.com/gpu stay pending",
        id="managed resources",
    ),
    pytest.param(set_in("entry", "bindVerb", ""), "warn", "bind-verb", "no bindVerb", id="no bind"),
    pytest.param(set_in("entry", "preemptVerb", ""), "warn", "preempt-verb", "evicts", id="no preempt"),
    pytest.param(
        set_in("config", "percentageOfNodesToScore", 50), "warn", "sampling", "share of the nodes", id="sampling"
    ),
    pytest.param(
        set_in("entry", "urlPrefix", f"http://127.0.0.1:{free_port()}/scheduler"),
        "fail",
        "reachable",
        "refused",
        id="no server listens",
    ),
    pytest.param(set_in("entry", "urlPrefix", "http://[::1"), "fail", "extenders", "http://", id="half an address"),
    pytest.param(
        set_in("entry", "urlPrefix", "http://extender.extender-system.svc:8888/scheduler"),
        "fail",
        "reachable",
        "resol|Name",
        id="DNS",
    ),
    pytest.param(
        set_in("extender", "GET /readyz", (500, "[-]cache: waits for pods")),
        "fail",
        "ready",
        "waits for pods",
        id="not ready",
    ),
    pytest.param(
        set_in("extender", "GET /readyz", "<html>Welcome</html>"),
        "fail",
        "ready",
        "^/readyz of .* answers 200 with text/html; an extender answers 200, so this may be another server$",
        id="a page",
    ),
    pytest.param(
        set_in("extender", "POST /scheduler/filter", (501, "<html>Unsupported method</html>")),
        "fail",
        "verbs",
        "/filter answers 501 with text/html; an extender answers 200, so this may be another server$",
        id="a page for a verb",
    ),
    pytest.param(
        set_in("extender", "POST /scheduler/filter", (404, {"Error": "no such path"})),
        "fail",
        "verbs",
        "filterVerb .*/scheduler/filter answers 404",
        id="prefix",
    ),
    pytest.param(
        set_in("extender", "POST /scheduler/prioritize", (403, {"Error": "no certificate"})),
        "fail",
        "verbs",
        "403",
        id="denied",
    ),
    pytest.param(
        set_in("extender", "POST /scheduler/bind", (200, {"Error": ""})),
        "fail",
        "verbs",
        "bindVerb",
        id="bind answers anything",
    ),
    pytest.param(answers_too_late, "fail", "reachable", "", id="time-out"),
]


@pytest.mark.parametrize(("spoil", "level", "check", "message"), FAULTS)
def test_each_fault_is_named(
    installation: Installation, spoil: Callable[[Installation], None], level: str, check: str, message: str
) -> None:
    spoil(installation)
    found = [each for each in installation.examined() if each["check"] == check and each["level"] == level]
    assert any(re.search(message, each["message"]) for each in found), installation.examined()
    assert all(each["fix"] for each in found if level != "ok")


@pytest.mark.parametrize(("mode", "level"), [("serve", "ok"), ("schedule", "fail")])
def test_a_profile_that_the_loop_refuses_is_named(installation: Installation, mode: str, level: str) -> None:
    installation.policy += "profiles: [{plugins: {filter: {disabled: [{name: DynamicResources}]}}}]\n"
    installation.flags += ["--mode", mode]
    (found,) = [each for each in installation.examined() if each["check"] == "policy"]
    fault = (
        "profiles[0].plugins.reserve: DynamicResources requires its filter, which is disabled; "
        "enable or disable the plugin by multiPoint"
    )
    assert (found["level"], found["message"] == fault) == (level, level == "fail")


@pytest.mark.parametrize(
    ("flags", "level"),
    [pytest.param([], "warn", id="serve"), pytest.param(["--mode", "schedule"], "ok", id="schedule")],
)
def test_rules_that_never_run_beside_kube_scheduler_are_named(
    installation: Installation, flags: list[str], level: str
) -> None:
    rule = "from extender import Pod, pre_enqueue\n\n\n@pre_enqueue\ndef gate(pod: Pod) -> bool:\n    return True\n"
    (installation.folder / "gates_of_doctor.py").write_text(rule)
    installation.policy += "profiles: [{plugins: {preEnqueue: {enabled: [{name: 'gates_of_doctor:gate'}]}}}]\n"
    installation.flags += flags
    (found,) = [each for each in installation.examined() if each["check"] == "policy"]
    assert found["level"] == level
    assert ("never run in `extender serve`: gates_of_doctor:gate" in found["message"]) == (level == "warn")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(
            lambda: lease(60), "was renewed [0-9]+ s ago by a, so there is no leader", id="no process renews it"
        ),
        pytest.param(lambda: {"spec": {}}, "has no holder", id="given up"),
        pytest.param(lambda: (403, {"message": "forbidden"}), "cannot be read", id="no right"),
    ],
)
def test_a_lease(installation: Installation, document: Callable[[], Any], message: str) -> None:
    installation.cluster[f"GET {LEASE}"] = document()
    installation.flags += ["--lease", "extender-system/extender"]
    (found,) = [each for each in installation.examined() if each["check"] == "lease"]
    assert found["level"] == "fail"
    assert re.search(message, found["message"])


@pytest.mark.parametrize(
    ("served", "level", "message"),
    [
        pytest.param(None, "ok", "PodGroups are not served", id="no API"),
        pytest.param("v1alpha2", "warn", "but the extender reads scheduling.k8s.io/v1beta1", id="an older version"),
        pytest.param("v1beta1", "ok", "set the feature gate GenericWorkload to kube-scheduler's value", id="served"),
    ],
)
def test_pod_groups(installation: Installation, served: str | None, level: str, message: str) -> None:
    if served is not None:
        group = f"scheduling.k8s.io/{served}"
        installation.cluster["GET /apis/scheduling.k8s.io"] = {"versions": [{"groupVersion": group}]}
        installation.cluster[f"GET /apis/{group}"] = {"resources": [{"name": "podgroups"}]}
    (found,) = [each for each in installation.examined() if each["check"] == "pod-groups"]
    assert found["level"] == level
    assert message in found["message"]


def test_pod_groups_of_coscheduling(installation: Installation) -> None:
    path = "GET /apis/scheduling.x-k8s.io/v1alpha1"
    installation.cluster[path] = {"resources": [{"name": "podgroups"}]}
    (found,) = [each for each in installation.examined() if each["check"] == "pod-groups"]
    assert found["message"] == (
        "coscheduling's PodGroups are served; `extender serve --coscheduling` places the pods of each together"
    )


def test_two_schedulers_of_one_name(installation: Installation) -> None:
    installation.flags += ["--mode", "schedule"]
    (found,) = [each for each in installation.examined() if each["check"] == "scheduler-names"]
    assert (found["level"], "default-scheduler" in found["message"]) == ("fail", True)


@pytest.mark.parametrize(
    ("name", "days", "level", "check", "message"),
    [
        pytest.param("127.0.0.1", 90, "ok", "certificate", "127.0.0.1", id="good"),
        pytest.param("127.0.0.1", 10, "warn", "certificate", "expires in (9|10) days", id="soon"),
        pytest.param("127.0.0.1", -1, "fail", "reachable", "expired", id="expired"),
        pytest.param("other.example", 90, "fail", "reachable", "127.0.0.1", id="another name"),
    ],
)
def test_certificates(installation: Installation, name: str, days: int, level: str, check: str, message: str) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(installation.folder / "ca.pem"))
    installation.scheme = "https"
    installation.tls = server_context(ca, name, datetime.now(UTC) + timedelta(days=days))
    installation.entry = {"enableHTTPS": True, "tlsConfig": {"caFile": str(installation.folder / "ca.pem")}}
    found = [each for each in installation.examined() if (each["check"], each["level"]) == (check, level)]
    assert [bool(re.search(message, each["message"])) for each in found] == [True]


def test_text_says_what_to_do(installation: Installation) -> None:
    with scripted({**healthy_extender(), "GET /readyz": (500, "waits for pods")}) as port:
        result = CliRunner().invoke(
            cli, ["doctor", "--url", f"http://127.0.0.1:{port}/scheduler"], env={"KUBECONFIG": "-"}
        )
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("fail  ready: /readyz of 127.0.0.1:")
    assert lines[1].endswith("(docs/doctor.md#ready)")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param(
            ["--url", "nowhere"],
            "--url: expected a URL, like http://127.0.0.1:8888/scheduler, got 'nowhere'",
            id="no URL",
        ),
        pytest.param(["--account", "x", "--url", "http://127.0.0.1:1/"], "expected NAMESPACE/NAME", id="account"),
        pytest.param(["--scheduler-config", "none.yaml"], "No such file", id="no file"),
        pytest.param([], "nothing to check", id="nothing"),
    ],
)
def test_wrong_input(flags: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    result = CliRunner().invoke(cli, ["doctor", *flags])
    assert isinstance(result.exception, ConfigurationError)
    assert message in " ".join(result.exception.faults)


def checks() -> Iterator[str]:
    source = Path(__file__).parents[2] / "extender" / "app"
    for name in ("doctor.py", "cluster_checks.py"):
        yield from re.findall(r"\b(?:ok|warn|fail)\(\s*\"([a-z-]+)\"", (source / name).read_text())


def test_the_docs_explain_every_check() -> None:
    headings = re.findall(r"^## ([a-z-]+)$", DOCS.read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(set(checks()))


@pytest.mark.stock
def test_the_rights_of_an_account(control_plane: ControlPlane) -> None:
    account = "doctor-test/nobody"
    flags = ["doctor", "--kubeconfig", str(control_plane.kubeconfig), "--account", account, "-o", "json"]
    by_check = {each["check"]: each for each in json.loads(CliRunner().invoke(cli, flags).stdout)["findings"]}
    assert by_check["version"]["level"] == by_check["served-apis"]["level"] == by_check["clock"]["level"] == "ok"
    assert by_check["rights"]["level"] == "fail"
    role = yaml.safe_load_all((Path(__file__).parents[2] / "manifests" / "service" / "all.yaml").read_text())
    rules = next(each["rules"] for each in role if each["kind"] == "ClusterRole")
    group = "/apis/rbac.authorization.k8s.io/v1"
    meta = {"metadata": {"name": "doctor-test"}}
    control_plane.client.request("POST", f"{group}/clusterroles", {**meta, "rules": rules})
    subject = {"kind": "ServiceAccount", "namespace": "doctor-test", "name": "nobody"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "doctor-test"}
    control_plane.client.request(
        "POST", f"{group}/clusterrolebindings", {**meta, "roleRef": reference, "subjects": [subject]}
    )
    try:
        by_check = {each["check"]: each for each in json.loads(CliRunner().invoke(cli, flags).stdout)["findings"]}
        assert by_check["rights"]["level"] == "ok"
        assert "too-many-rights" not in by_check
    finally:
        control_plane.client.request("DELETE", f"{group}/clusterroles/doctor-test")
        control_plane.client.request("DELETE", f"{group}/clusterrolebindings/doctor-test")


@pytest.mark.parametrize(
    ("mode", "entry", "points", "reported"),
    [
        pytest.param(
            [], {}, {}, r"policy\.yaml:3: profiles\[0\]\.plugins keeps .* NodeResourcesFit, .* twice", id="serve"
        ),
        pytest.param([], {}, {"multiPoint": {"disabled": [{"name": "*"}]}}, None, id="serve, with the rules alone"),
        pytest.param([], {"prioritizeVerb": ""}, {}, None, id="serve, without prioritize"),
        pytest.param(["--mode", "schedule"], {}, {}, None, id="schedule"),
    ],
)
def test_in_tree_scores_beside_rules_of_the_webhook_are_named(
    installation: Installation, mode: list[str], entry: dict[str, Any], points: dict[str, object], reported: str | None
) -> None:
    lines = "from extender import predicate\n@predicate\ndef rule(pod, node): return True\n"
    (installation.folder / "twice_of_doctor.py").write_text(lines)
    plugins = {**points, "filter": {"enabled": [{"name": "twice_of_doctor:rule"}]}}
    installation.policy += f"profiles: [{json.dumps({'plugins': plugins})}]\n"
    installation.flags += mode
    installation.entry = entry
    found = [each for each in installation.examined() if each["check"] == "scores-twice"]
    assert bool(found) == (reported is not None)
    assert reported is None or re.search(reported, found[0]["message"]), found


def test_of_a_classic_policy_the_list_of_priorities_is_to_be_changed(installation: Installation) -> None:
    lines = "from extender import predicate\n@predicate\ndef rule(pod, node): return True\n"
    (installation.folder / "classic_of_doctor.py").write_text(lines)
    installation.policy = 'kind: Policy\napiVersion: v1\npredicates: [{name: "classic_of_doctor:rule"}]\n'
    (found,) = [each for each in installation.examined() if each["check"] == "scores-twice"]
    assert "NodeResourcesLeastAllocated" in found["message"]
    assert found["fix"] == "write `priorities` with only your rules"


def test_a_policy_with_which_serve_cannot_preempt_is_refused(installation: Installation) -> None:
    lines = "from extender import predicate\n@predicate(sees_pods=True)\ndef rule(pod, node): return True\n"
    (installation.folder / "preempting_of_doctor.py").write_text(lines)
    off = {"disabled": [{"name": "DefaultPreemption"}]}
    plugins = {"postFilter": off, "filter": {"enabled": [{"name": "preempting_of_doctor:rule"}]}}
    installation.policy += f"profiles: [{json.dumps({'plugins': plugins})}]\n"
    installation.flags += ["--preempt-for-rules"]
    (found,) = [each for each in installation.examined() if each["check"] == "policy"]
    assert (found["level"], "preemptForRules: no pod could be evicted" in found["message"]) == ("fail", True)


def test_preemption_for_rules_is_idle_without_a_rule_that_sees_pods(installation: Installation) -> None:
    lines = "from extender import predicate\n@predicate\ndef rule(pod, node): return True\n"
    (installation.folder / "unseeing_of_doctor.py").write_text(lines)
    plugins = {
        "multiPoint": {"disabled": [{"name": "*"}]},
        "filter": {"enabled": [{"name": "unseeing_of_doctor:rule"}]},
    }
    installation.policy += f"profiles: [{json.dumps({'plugins': plugins})}]\n"
    installation.flags += ["--preempt-for-rules"]
    (found,) = [each for each in installation.examined() if each["check"] == "policy"]
    assert (found["level"], "sees_pods=True" in found["message"]) == ("warn", True)


def test_an_answer_that_was_made_without_a_rule_is_named(installation: Installation) -> None:
    warning = ("Warning", '199 extender "decided without rules:rule: rules.py:3: KeyError"')
    installation.extender["POST /scheduler/filter"] = (200, {"NodeNames": [], "Error": ""}, warning)
    [found] = [each for each in installation.examined() if each["check"] == "left-out"]
    assert found["level"] == "warn"
    assert re.search(r"/scheduler/filter answers with the warning .* without rules:rule: .*KeyError", found["message"])


@pytest.mark.parametrize(
    ("url", "error", "connected", "advice"),
    [
        ("https://a:1/x", "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed", False, "take tlsConfig.caFile from the CA"),
        ("https://a:1/x", "[SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired", False, "renew the server's cert"),
        ("https://a:1/x", "_ssl.c:989: The handshake operation timed out", False, "use http in urlPrefix"),
        ("https://a:1/x", "[SSL: WRONG_VERSION_NUMBER] wrong version", False, "the server speaks http"),
        ("https://a:1/x", "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]", True, "--client-ca signed"),
        ("http://a:1/x", "the connection was closed", True, "the server may expect https"),
        ("https://a:1/x", "timed out", True, ""),
        ("http://a:1/x", "Connection refused", False, ""),
    ],
)
def test_a_connection_that_ends_in_the_handshake_is_named_as_tls(
    url: str, error: str, connected: bool, advice: str
) -> None:
    assert advice in tls_advice(url, error, connected=connected)
    assert tls_advice(url, error, connected=connected).startswith("TLS: ") == bool(advice)


@pytest.mark.parametrize(
    ("body", "level", "reported"),
    [
        pytest.param("True", "ok", r"costly takes \d+\.\d us per node, \d+\.\d ms for 1 node$", id="quick"),
        pytest.param("time.sleep(0.15) is None", "warn", r"costly takes \d{6,}\.\d us per node", id="slow"),
        pytest.param("1 / 0", "warn", "costly fails for an empty pod: .*rule_costs_.*ZeroDivisionError", id="failing"),
    ],
)
def test_what_a_rule_costs_on_the_nodes(
    installation: Installation, tmp_path: Path, body: str, level: str, reported: str, request: pytest.FixtureRequest
) -> None:
    module = f"rule_costs_{request.node.callspec.id}"
    lines = ["import time", "from extender import predicate", "@predicate", f"def costly(pod, node): return {body}"]
    (tmp_path / f"{module}.py").write_text("\n".join(lines))
    plugins = {"filter": {"enabled": [{"name": f"{module}:costly"}]}}
    installation.policy += yaml.safe_dump({"profiles": [{"plugins": plugins}]})
    (found,) = [each for each in installation.examined() if each["check"] == "rule-cost"]
    assert found["level"] == level
    assert re.search(reported, found["message"]), found
