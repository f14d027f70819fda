"""Values with which the pods would not run are refused at rendering, and the refusal has the value's name."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests.rendering import NAMES, Object, RenderError, container_of, objects, render, the
from tests.stock.build import Binaries

pytestmark = [pytest.mark.stock, pytest.mark.clients]

SERVICE = {"shape": "service"}
CERTIFIED = {"shape": "service", "certManager": {"enabled": True}}
CONFIGURATION: dict[str, dict[str, Any]] = {
    "an unknown field": {"percentageOfNodeToScore": 100},
    "an unknown version": {"apiVersion": "kubescheduler.config.k8s.io/v1beta3"},
    "a share above all": {"percentageOfNodesToScore": 101},
    "no worker": {"parallelism": 0},
    "a duration without a unit": {"leaderElection": {"leaseDuration": "15"}},
    "an unknown extension point": {"profiles": [{"plugins": {"filters": {}}}]},
    "an unknown field of a profile": {"profiles": [{"name": "mine"}]},
    "other extenders": {"extenders": []},
}
ENTRY: dict[str, dict[str, Any]] = {
    "an unknown field": {"ignoreable": True},
    "a number as a duration": {"httpTimeout": 5},
    "no weight": {"weight": 0},
    "a resource without a domain": {"managedResources": [{"name": "gpu"}]},
    "no URL": {"urlPrefix": "127.0.0.1:8888"},
}
REFUSED: list[Any] = [
    pytest.param({"metrics": {"port": 8888}, **SERVICE}, "metrics.port", id="equal ports"),
    pytest.param({"service": {"port": 8889}, **SERVICE}, "service.port", id="equal ports, the other changed"),
    pytest.param({"metrics": {"port": 8888}}, "metrics.port", id="the port of the verbs"),
    pytest.param({"metrics": {"port": 10259}}, "metrics.port", id="the port of kube-scheduler"),
    pytest.param({"metrics": {"port": 70000}}, "port", id="no port"),
    pytest.param({"listenAddress": "localhost"}, "listenAddress", id="a name as address"),
    pytest.param({"listenAddress": "::"}, "listenAddress", id="an address without brackets"),
    pytest.param({"resources": {"request": {}}}, "resources", id="an unknown key of resources"),
    pytest.param({"resources": {"limits": {"memory": "2 Gi"}}}, "memory", id="no quantity"),
    pytest.param({"kubeScheduler": {"resources": {"limit": {}}}}, "resources", id="an unknown key of its resources"),
    pytest.param({"priorityClassName": "High Priority"}, "priorityClassName", id="no name of a class"),
    pytest.param({"fullnameOverride": "-x"}, "fullnameOverride", id="no name"),
    pytest.param({"nameOverride": "x" * 64}, "nameOverride", id="a name too long for a label"),
    pytest.param({"schedulerName": "Mine"}, "schedulerName", id="no name of a scheduler"),
    pytest.param({"featureGates": {"GenericWorkload": "yes"}}, "featureGates", id="a gate that is neither on nor off"),
    pytest.param({"kubernetesVersion": 1.38}, "kubernetesVersion", id="a version that is a number"),
    pytest.param({"policy": {"kind": "Policy"}, "policyConfigMap": "own"}, "policyConfigMap", id="two policies"),
    pytest.param({"hostNetwork": True}, "hostNetwork", id="loopback of the node"),
    pytest.param({"probes": {"liveness": {"timeout": 1}}}, "liveness", id="an unknown field of a probe"),
    pytest.param({"podSecurityContext": {"runAsuser": 1}}, "podSecurityContext", id="a field in another case"),
    pytest.param({"securityContext": {"drop": ["ALL"]}}, "securityContext", id="a field at another place"),
    pytest.param({"podDisruptionBudget": {"minAvailable": "half"}}, "minAvailable", id="no number of pods"),
    pytest.param({"tolerations": [{"operator": "Exist"}]}, "tolerations", id="an unknown operator"),
    pytest.param({"affinity": {"nodeaffinity": {}}}, "affinity", id="an unknown affinity"),
    pytest.param({"topologySpreadConstraints": [{"maxSkew": 1}]}, "topologySpreadConstraints", id="half a constraint"),
    pytest.param({"resourceQuota": {"enabled": True}, "priorityClassName": ""}, "resourceQuota", id="no class"),
    pytest.param({"service": {"clusterIP": "here"}, **SERVICE}, "clusterIP", id="no address of a Service"),
    pytest.param({"service": {"type": "ExternalName"}, **SERVICE}, "type", id="a Service without an address"),
    pytest.param({"certManager": {"issuerRef": {"name": "ca"}}, **SERVICE}, "certManager.issuerRef", id="not used"),
    pytest.param({**CERTIFIED, "certManager": {"enabled": True, "duration": "90d"}}, "duration", id="days"),
    pytest.param({**CERTIFIED, "service": {"clientNames": ["x" * 65]}}, "service.clientNames", id="a long common name"),
    pytest.param({"metrics": {"serviceMonitor": {"interval": "often"}}}, "interval", id="no interval"),
    pytest.param({"networkPolicy": {"callers": [{"cidr": "10.0.0.0/8"}]}}, "callers", id="no peer"),
    *(
        pytest.param(
            {"kubeScheduler": {"configuration": fields}}, "kubeScheduler/configuration", id=f"configuration: {name}"
        )
        for name, fields in CONFIGURATION.items()
    ),
    *(
        pytest.param({"kubeScheduler": {"extender": fields}}, "kubeScheduler/extender", id=f"entry: {name}")
        for name, fields in ENTRY.items()
    ),
]


@pytest.mark.parametrize(("values", "name"), REFUSED)
def test_values_with_which_nothing_would_run_are_refused_by_name(
    stock_binaries: Binaries, values: Object, name: str
) -> None:
    with pytest.raises(RenderError) as raised:
        render(stock_binaries, values)
    assert name in str(raised.value)


def test_a_release_whose_name_begins_with_a_digit_needs_another_name(stock_binaries: Binaries) -> None:
    with pytest.raises(RenderError, match="fullnameOverride"):
        render(stock_binaries, {}, name="2nd")


@pytest.mark.parametrize("shape", ["beside", "service"])
def test_kube_scheduler_starts_with_what_may_be_set(stock_binaries: Binaries, tmp_path: Path, shape: str) -> None:
    configuration = {
        "parallelism": 8,
        "clientConnection": {"kubeconfig": str(tmp_path / "kubeconfig"), "qps": 100, "burst": 200},
        "leaderElection": {"leaseDuration": "20s", "renewDeadline": "15s", "retryPeriod": "2s"},
        "podInitialBackoffSeconds": 2,
        "podMaxBackoffSeconds": 20,
        "delayCacheUntilActive": True,
        "profiles": [{"schedulerName": "mine", "plugins": {"score": {"disabled": [{"name": "ImageLocality"}]}}}],
    }
    entry = {"ignorable": True, "httpTimeout": "1m30s", "managedResources": [{"name": "example.com/ruled"}]}
    entry["tlsConfig"] = {} if shape == "beside" else {"caFile": "", "certFile": "", "keyFile": "", "insecure": True}
    values = {"shape": shape, "kubeScheduler": {"configuration": configuration, "extender": entry}}
    found = the(objects(stock_binaries, values), "ConfigMap", "extender-kube-scheduler")
    (tmp_path / "kube-scheduler.yaml").write_text(found["data"]["kube-scheduler.yaml"])
    kubeconfig = {"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "c", "cluster": {"server": "http://[::1]:1"}}],
                  "contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}  # fmt: skip
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    written = tmp_path / "written.yaml"
    command: list[str | Path] = [
        stock_binaries["kube-scheduler"],
        f"--config={tmp_path}/kube-scheduler.yaml",
        f"--write-config-to={written}",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    document = yaml.safe_load(written.read_text())
    assert (document["parallelism"], document["percentageOfNodesToScore"]) == (8, 100)
    assert document["extenders"][0]["managedResources"] == [{"name": "example.com/ruled"}]


def test_common_names_of_certificates_fit(stock_binaries: Binaries) -> None:
    """X.509 allows 64 characters; `extender certs` cuts a longer name off too. The DNS names are whole."""
    namespace = "n" * 50
    found = objects(stock_binaries, {**CERTIFIED, "fullnameOverride": "extender" * 5}, namespace)
    specs = [each["spec"] for each in found if each["kind"] == "Certificate"]
    assert max(len(spec["commonName"]) for spec in specs) == 64
    (server,) = (spec for spec in specs if "dnsNames" in spec)
    assert server["dnsNames"][0] == f"{'extender' * 5}.{namespace}.svc"


def test_an_issuer_of_the_cluster_signs_all_certificates(stock_binaries: Binaries) -> None:
    issuer = {"kind": "ClusterIssuer", "name": "internal"}
    metrics = {"clientCASecret": "extender-scrapers"}
    found = objects(
        stock_binaries, {**SERVICE, "certManager": {"enabled": True, "issuerRef": issuer}, "metrics": metrics}
    )
    assert [each["kind"] for each in found if each["kind"] == "Issuer"] == []
    assert [each["spec"]["issuerRef"] for each in found if each["kind"] == "Certificate"] == [issuer] * 3


def test_openshift_may_choose_the_user(stock_binaries: Binaries) -> None:
    values = {"podSecurityContext": {"runAsUser": None, "runAsGroup": None}}
    pod = the(objects(stock_binaries, values), "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_gates_reach_kube_scheduler_too(stock_binaries: Binaries) -> None:
    values = {"featureGates": {"GenericWorkload": True, "DRAPartitionableDevices": False}}
    deployment = the(objects(stock_binaries, values, name=NAMES["beside"]), "Deployment", NAMES["beside"])
    flag = "--feature-gates=DRAPartitionableDevices=false,GenericWorkload=true"
    assert flag in container_of(deployment)["args"]
    assert flag in container_of(deployment, "kube-scheduler")["command"]


@pytest.mark.parametrize("shape", NAMES)
def test_the_version_to_decide_like_reaches_the_extender(stock_binaries: Binaries, shape: str) -> None:
    for version, flags in (("auto", []), ("1.38", ["--kubernetes-version=1.38"])):
        values = {"shape": shape, "kubernetesVersion": version}
        deployment = the(objects(stock_binaries, values, name=NAMES[shape]), "Deployment", NAMES[shape])
        arguments = container_of(deployment)["args"]
        assert [flag for flag in arguments if flag.startswith("--kubernetes-version")] == flags
