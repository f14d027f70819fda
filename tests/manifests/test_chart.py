"""The chart: every value is used, documented and accepted by a real API server; the manifests are what it renders."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.main import cli
from extender.config.settings import OPTIONS
from extender.web.series import SCHEDULER_SERIES, SERIES
from tests.manifests.rendering import (
    CHART,
    MANIFESTS,
    NAME,
    NAMES,
    NAMESPACE,
    SHAPES,
    Object,
    RenderError,
    container_of,
    files,
    notes,
    objects,
    render,
    the,
)
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
README = (CHART / "README.md").read_text().partition("## Values")[2]
POLICY = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
          "profiles": [{"schedulerName": "mine"}]}  # fmt: skip
DIGEST = f"sha256:{'0' * 64}"
PEER = [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
MONITORED = {"metrics": {name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "dashboard")}}

# Each value with another than its default, and what else must be given for it to count.
CHANGED: dict[str, tuple[Any, dict[str, Any]]] = {
    "shape": ("scheduler", {}),
    "nameOverride": ("other", {}),
    "fullnameOverride": ("other", {}),
    "schedulerName": ("other", {}),
    "replicas": (3, {}),
    "image.repository": ("registry.example.com/extender", {}),
    "image.tag": ("0.9.0", {}),
    "image.digest": (DIGEST, {}),
    "image.pullPolicy": ("Always", {}),
    "image.pullSecrets": ([{"name": "registry"}], {}),
    "policy": (POLICY, {}),
    "rules": ({"mine.py": "X = 1\n"}, {"policy": POLICY}),
    "preemptForRules": (True, {"shape": "service"}),
    "onRuleFailure": ("ignore", {}),
    "coscheduling": (True, {"shape": "service"}),
    "extraArgs": (["--log-level=debug"], {}),
    "extraEnv": ([{"name": "TZ", "value": "UTC"}], {}),
    "extraVolumes": ([{"name": "certs", "emptyDir": {}}], {}),
    "extraVolumeMounts": ([{"name": "tmp", "mountPath": "/certs"}], {}),
    "extraObjects": ([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}}], {}),
    "listenAddress": ("[::]", {}),
    "commonLabels": ({"team": "platform"}, {}),
    "policyConfigMap": ("own", {}),
    "featureGates": ({"GenericWorkload": True}, {}),
    "kubernetesVersion": ("1.38", {}),
    "probes.startup": ({"failureThreshold": 600}, {}),
    "probes.liveness": ({"timeoutSeconds": 10}, {}),
    "probes.readiness": ({"timeoutSeconds": 10}, {}),
    "kubeScheduler.image.digest": (DIGEST, {}),
    "service.clusterIP": ("10.96.0.99", {"shape": "service"}),
    "service.type": ("NodePort", {"shape": "service"}),
    "service.ipFamilyPolicy": ("PreferDualStack", {"shape": "service"}),
    "service.annotations": ({"team": "platform"}, {"shape": "service"}),
    "certManager.issuerRef": ({"kind": "ClusterIssuer", "name": "internal"},
                              {"shape": "service", "certManager": {"enabled": True}}),
    "podDisruptionBudget.minAvailable": (1, {}),
    "podSchedulerName": ("system-scheduler", {}),
    "podSecurityContext": ({"fsGroup": 1000}, {}),
    "securityContext": ({"runAsUser": 1000}, {}),
    "hostNetwork": (True, {"shape": "service"}),
    "dnsPolicy": ("Default", {}),
    "topologySpreadConstraints": ([{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}], {}),
    "resources": ({"requests": {"cpu": "1"}}, {}),
    "kubeScheduler.image.repository": ("registry.example.com/kube-scheduler", {}),
    "kubeScheduler.image.tag": ("v1.36.3", {}),
    "kubeScheduler.configuration": ({"podInitialBackoffSeconds": 2}, {}),
    "kubeScheduler.extender": ({"ignorable": True}, {}),
    "kubeScheduler.extraArgs": (["-v=4"], {}),
    "kubeScheduler.resources": ({"requests": {"cpu": "1"}}, {}),
    "service.port": (9443, {"shape": "service"}),
    "service.clientNames": (["other"], {"shape": "service"}),
    "service.secretName": ("other", {"shape": "service"}),
    "certManager.enabled": (True, {"shape": "service"}),
    "certManager.duration": ("720h", {"shape": "service", "certManager": {"enabled": True}}),
    "metrics.port": (9090, {}),
    "metrics.clientCASecret": ("extender-scrapers", {"shape": "service", "certManager": {"enabled": True}}),
    "metrics.serviceMonitor.enabled": (True, {}),
    "metrics.serviceMonitor.interval": ("10s", MONITORED),
    "metrics.serviceMonitor.labels": ({"release": "prometheus"}, MONITORED),
    "metrics.serviceMonitor.endpoint": ({"scheme": "https"}, MONITORED),
    "metrics.prometheusRule.enabled": (True, {}),
    "metrics.prometheusRule.labels": ({"release": "prometheus"}, MONITORED),
    "metrics.prometheusRule.runbook": ("https://runbooks.example", MONITORED),
    "metrics.prometheusRule.staleSeconds": (60, MONITORED),
    "metrics.prometheusRule.failedBinds": (0.5, MONITORED),
    "metrics.prometheusRule.p99Seconds": (0.5, MONITORED),
    "metrics.dashboard.enabled": (True, {}),
    "metrics.dashboard.labels": ({"other": "1"}, MONITORED),
    "networkPolicy.enabled": (True, {"shape": "service"}),
    "networkPolicy.callers": (PEER, {"shape": "service", "networkPolicy": {"enabled": True}}),
    "networkPolicy.scrapers": (PEER, {"networkPolicy": {"enabled": True}}),
    "networkPolicy.egress.enabled": (True, {"networkPolicy": {"enabled": True}}),
    "networkPolicy.egress.apiServers": (PEER, {"networkPolicy": {"enabled": True, "egress": {"enabled": True}}}),
    "networkPolicy.egress.ports": ([443], {"networkPolicy": {"enabled": True, "egress": {"enabled": True}}}),
    "networkPolicy.egress.more": ([{"ports": [{"port": 4318}]}],
                                  {"networkPolicy": {"enabled": True, "egress": {"enabled": True}}}),
    "podDisruptionBudget.enabled": (False, {}),
    "podDisruptionBudget.maxUnavailable": ("50%", {}),
    "resourceQuota.enabled": (True, {}),
    "resourceQuota.pods": (20, {"resourceQuota": {"enabled": True}}),
    "priorityClassName": ("system-node-critical", {}),
    "nodeSelector": ({"pool": "system"}, {}),
    "tolerations": ([{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}], {}),
    "affinity": ({"nodeAffinity": {}}, {}),
    "podLabels": ({"team": "platform"}, {}),
    "podAnnotations": ({"team": "platform"}, {}),
    "serviceAccount.create": (False, {}),
    "serviceAccount.name": ("other", {}),
    "serviceAccount.annotations": ({"team": "platform"}, {}),
    "rbac.create": (False, {}),
}  # fmt: skip


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yields the paths of values that users set: maps that are empty, or free in form, are one."""
    for key, value in values.items():
        where = f"{path}{key}"
        if isinstance(value, dict) and value and where not in CHANGED:
            yield from leaves(value, f"{where}.")
        else:
            yield where


def merged(values: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    head, _, rest = path.partition(".")
    return {**values, head: merged(values.get(head, {}), rest, value) if rest else value}


@pytest.fixture(scope="module")
def rendered(stock_binaries: Binaries) -> Any:
    return cache(lambda text: objects(stock_binaries, json.loads(text)))


def test_every_value_has_a_line_in_the_readme_and_a_case_here() -> None:
    assert set(leaves(VALUES)) == set(CHANGED)
    listed = re.findall(r"^\| `([\w.]+)` \|", README, re.MULTILINE)
    assert listed == list(leaves(VALUES))


def test_the_readme_lists_the_defaults() -> None:
    for path, recorded in re.findall(r"^\| `([\w.]+)` \| `(.*?)` \|", README, re.MULTILINE):
        value = VALUES
        for key in path.split("."):
            value = value[key]
        assert yaml.safe_load(recorded) == value, path


@pytest.mark.stock
@pytest.mark.clients
@pytest.mark.parametrize("path", CHANGED)
def test_every_value_changes_what_is_rendered(rendered: Any, path: str) -> None:
    value, needed = CHANGED[path]
    assert rendered(json.dumps(merged(needed, path, value))) != rendered(json.dumps(needed))


@pytest.mark.stock
@pytest.mark.clients
@pytest.mark.parametrize(("shape", "asked"), [("beside", True), ("service", True), ("service", False)])
def test_pods_may_be_deleted_only_where_rules_are_to_preempt(rendered: Any, shape: str, asked: bool) -> None:
    made = rendered(json.dumps({"shape": shape, "preemptForRules": asked}))
    granted = [rule for each in made if each["kind"] == "ClusterRole" for rule in each["rules"]]
    assert any("delete" in rule["verbs"] for rule in granted) is asked
    deployment = next(each for each in made if each["kind"] == "Deployment")
    assert ("--preempt-for-rules" in container_of(deployment)["args"]) is asked


@pytest.mark.stock
@pytest.mark.clients
def test_the_api_server_accepts_every_shape_with_every_value(control_plane: ControlPlane, rendered: Any) -> None:
    """Each object once, in every form that a value gives it; kinds of cert-manager and Prometheus have no schema."""
    control_plane.kubectl("apply", "-f", str(MANIFESTS / "namespace.yaml"))
    custom = [_definition(group, kind) for group, kinds in CUSTOM.items() for kind in kinds]
    control_plane.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": custom}))
    control_plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    found: dict[str, Object] = {}
    variants = [merged(needed, path, value) for path, (value, needed) in CHANGED.items()]
    everything = {**MONITORED, "certManager": {"enabled": True}, "networkPolicy": {"enabled": True}, "policy": POLICY}
    everything["metrics"] = {**MONITORED["metrics"], "clientCASecret": "extender-scrapers"}
    for values in (*variants, *({**everything, "shape": shape} for shape in SHAPES)):
        found |= {json.dumps(each): each for each in rendered(json.dumps(values))}
    items = {"apiVersion": "v1", "kind": "List", "items": list(found.values())}
    try:
        recorded = control_plane.kubectl(
            "apply", "--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "-f", "-",
            stdin=json.dumps(items),
        )  # fmt: skip
    finally:
        control_plane.kubectl("delete", "crd", "--all", "--wait=false")
    assert len(recorded.splitlines()) == len(found) > 60


CUSTOM = {
    "cert-manager.io": ("Issuer", "Certificate"),
    "monitoring.coreos.com": ("ServiceMonitor", "PrometheusRule"),
}


def _definition(group: str, kind: str) -> Object:
    plural, schema = f"{kind.lower()}s", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    metadata = {"name": f"{plural}.{group}"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


@pytest.mark.stock
@pytest.mark.clients
def test_helm_installs_it_changes_its_shape_and_takes_it_away(
    control_plane: ControlPlane, stock_binaries: Binaries
) -> None:
    client = control_plane.client
    helm: list[str | Path] = [
        stock_binaries["helm"],
        "--kubeconfig",
        control_plane.kubeconfig,
        "--namespace",
        NAMESPACE,
    ]
    for command in (
        ["install", "--create-namespace"],
        ["upgrade", "--set", "shape=service"],
        ["upgrade", "--set", "shape=scheduler"],
    ):
        subprocess.run([*helm, command[0], NAME, CHART, *command[1:]], check=True, capture_output=True)
        args = container_of(client.get("Deployment", NAME, NAMESPACE))["args"]
        assert args[0] == ("schedule" if command[-1] == "shape=scheduler" else "serve")
    assert [each["metadata"]["name"] for each in client.list("Service", NAMESPACE)] == ["extender-metrics"]
    removal = subprocess.run([*helm, "uninstall", NAME], check=True, capture_output=True, text=True).stdout
    assert client.list("Deployment", NAMESPACE) == client.list("Service", NAMESPACE) == []
    assert {line for line in removal.splitlines() if line.startswith("[")} == {
        f"[ServiceAccount] {NAME}",
        f"[ClusterRole] {NAMESPACE}:{NAME}",
        f"[ClusterRoleBinding] {NAMESPACE}:{NAME}",
        f"[Role] {NAME}",
        f"[RoleBinding] {NAME}",
    }


@pytest.mark.stock
@pytest.mark.clients
@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        pytest.param({"shape": "sidecar"}, "shape", id="a shape that is none"),
        pytest.param({"replica": 2}, "replica", id="a value that is none"),
        pytest.param({"metrics": {"serviceMonitor": {"enable": True}}}, "enable", id="a value that is none, deep down"),
        pytest.param({"replicas": 0}, "replicas", id="no replica"),
        pytest.param({"rules": {"a.py": "x"}}, "name them in policy", id="rules that no policy names"),
        pytest.param({"image": {"pullSecrets": ["registry"]}}, "pullSecrets", id="the name of a Secret alone"),
        pytest.param({"extraEnv": [{"TZ": "UTC"}]}, "name", id="a variable without a name"),
        pytest.param({"nodeSelector": {"gpu": True}}, "nodeSelector", id="a label that is no string"),
    ],
)
def test_values_that_make_no_sense_are_refused(stock_binaries: Binaries, values: Object, complaint: str) -> None:
    with pytest.raises(RenderError, match=complaint):
        render(stock_binaries, values)


@pytest.mark.stock
@pytest.mark.clients
@pytest.mark.parametrize("shape", SHAPES)
def test_the_manifests_are_the_chart_rendered(stock_binaries: Binaries, shape: str) -> None:
    """`make manifests` makes them."""
    found = {str(path.relative_to(MANIFESTS / shape)): path.read_text() for path in (MANIFESTS / shape).rglob("*.*")}
    del found["kustomization.yaml"]  # of the shape, which people write
    assert found == files(stock_binaries, shape)


@pytest.mark.stock
@pytest.mark.clients
@pytest.mark.parametrize("shape", SHAPES)
def test_the_notes_end_with_how_to_see_that_all_is_well(stock_binaries: Binaries, shape: str) -> None:
    command, *words = notes(stock_binaries, {"shape": shape}).splitlines()[-1].removeprefix("  extender ").split()
    known = {flag for parameter in cli.commands[command].params for flag in parameter.opts}
    assert (command, {word for word in words if word.startswith("--")} <= known) == ("doctor", True)


@pytest.mark.stock
@pytest.mark.clients
@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({}, "Note: no public registry has the image podseat:"),
        ({"certManager": {"enabled": True}}, "Note: certManager and metrics.clientCASecret have no effect"),
        (
            {"shape": "service"},
            f"  extender certs pki/{NAMESPACE}/{NAME} --service {NAME}.{NAMESPACE}.svc --caller 'system:kube",
        ),
        ({"shape": "service", "service": {"secretName": "own"}}, "The pods start when the Secret own exists."),
        ({"shape": "scheduler", "policy": POLICY}, "A pod chooses this scheduler with spec.schedulerName: mine."),
    ],
)
def test_the_notes_say_what_is_left_to_do(stock_binaries: Binaries, values: Object, line: str) -> None:
    assert any(each.startswith(line) for each in notes(stock_binaries, values).splitlines())


@pytest.mark.stock
@pytest.mark.clients
def test_the_notes_warn_of_nothing_that_is_done(stock_binaries: Binaries) -> None:
    values = {"shape": "service", "certManager": {"enabled": True}, "image": {"repository": "registry.example.com/x"}}
    text = notes(stock_binaries, values)
    assert "Note:" not in text
    assert "extender certs" not in text


@pytest.mark.parametrize("shape", SHAPES)
def test_flags_and_variables_exist(shape: str) -> None:
    documents = list(yaml.safe_load_all((MANIFESTS / shape / "all.yaml").read_text()))
    pod = the(documents, "Deployment", NAMES[shape])["spec"]["template"]["spec"]
    containers = [*pod["containers"], *pod.get("initContainers", ())]
    (container,) = (each for each in containers if each["name"] == "extender")
    command, *flags = container["args"]
    known = {flag for parameter in cli.commands[command].params for flag in parameter.opts}
    assert {flag.partition("=")[0] for flag in flags} <= known
    assert {each["name"] for each in container["env"]} <= {option.variable for option in OPTIONS.values()}


@pytest.mark.stock
@pytest.mark.clients
@pytest.mark.parametrize("shape", SHAPES)
def test_dashboards_and_alerts_ask_for_series_that_exist(rendered: Any, shape: str) -> None:
    found = rendered(json.dumps({**MONITORED, "shape": shape}))
    rules = the(found, "PrometheusRule")["spec"]["groups"][0]["rules"]
    panels = json.loads(the(found, "ConfigMap", "extender-dashboard")["data"]["extender.json"])["panels"]
    asked = [rule["expr"] for rule in rules] + [each["expr"] for panel in panels for each in panel.get("targets", ())]
    assert len(asked) > 10
    known = {**SERIES, **SCHEDULER_SERIES}
    for expression in asked:
        names = re.findall(r"\b(\w+)\{", expression)
        assert names, expression
        for name in names:
            assert name in known or re.sub(r"_(bucket|sum|count)$", "", name) in known, name
            labels = known.get(name) or known[re.sub(r"_(bucket|sum|count)$", "", name)]
            by = set(re.findall(r"\w+", ",".join(re.findall(r"by \((.*?)\)", expression))))
            assert by <= {*labels.labels, "le", "job", "pod"}, expression


@pytest.mark.stock
@pytest.mark.clients
def test_alerts_and_dashboards_keep_installations_in_two_namespaces_apart(rendered: Any) -> None:
    found = rendered(json.dumps(MONITORED))
    selector = f'{{job="extender-metrics",namespace="{NAMESPACE}"'
    for rule in the(found, "PrometheusRule")["spec"]["groups"][0]["rules"]:
        assert rule["expr"].count("{") == rule["expr"].count(selector) > 0
    panels = json.loads(the(found, "ConfigMap", "extender-dashboard")["data"]["extender.json"])["panels"]
    for query in (each["expr"] for panel in panels for each in panel.get("targets", ())):
        assert query.count("{") == query.count('{namespace=~"$namespace",job=~"$job",pod=~"$pod"}')


@pytest.mark.stock
@pytest.mark.clients
def test_nothing_leaves_the_namespace_but_rights(rendered: Any) -> None:
    for shape in SHAPES:
        for each in rendered(json.dumps({"shape": shape})):
            if not each["kind"].startswith("ClusterRole"):
                reader = each["metadata"]["name"] == f"{NAMESPACE}:{NAME}:authentication-reader"
                assert each["metadata"]["namespace"] == ("kube-system" if reader else NAMESPACE)
