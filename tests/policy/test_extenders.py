"""`extenders` of both forms of a policy: what is read, and the place of every fault."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.errors import ConfigurationError
from extender.model.extender_config import ExtenderConfig, TLSConfig
from extender.plugins.node_resources_fit import NodeResourcesFitFilter
from extender.policy.extenders import ignoring
from extender.policy.loading import load, read
from tests.builders import Object
from tests.policy.configurations import profile

URL = "http://127.0.0.1:8888/scheduler"
GPU = "example.com/gpu"


def configuration(*extenders: Object) -> Object:
    return {**profile(schedulerName="default-scheduler"), "extenders": list(extenders)}


def classic(*extenders: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Policy", "extenders": list(extenders)}


def entry(**fields: Any) -> Object:
    return {"urlPrefix": URL, **fields}


def test_every_field() -> None:
    tls = {"serverName": "x", "certFile": "/c", "keyFile": "/k", "caData": base64.b64encode(b"PEM").decode()}
    given = entry(
        filterVerb="filter",
        prioritizeVerb="prioritize",
        preemptVerb="preempt",
        bindVerb="bind",
        weight=5,
        enableHTTPS=True,
        tlsConfig=tls,
        httpTimeout="1m1.5s",
        nodeCacheCapable=True,
        ignorable=True,
        managedResources=[{"name": GPU, "ignoredByScheduler": True}, {"name": "example.com/b"}],
    )
    assert read(configuration(given)).extenders == (
        ExtenderConfig(
            URL,
            "filter",
            "prioritize",
            "preempt",
            "bind",
            5,
            TLSConfig(True, "x", None, Path("/c"), Path("/k"), b"PEM"),
            61.5,
            True,
            frozenset({GPU, "example.com/b"}),
            frozenset({GPU}),
            True,
        ),
    )


@pytest.mark.parametrize("form", [configuration, classic])
def test_what_is_not_said(form: Any) -> None:
    assert read(form(entry())).extenders == (ExtenderConfig(URL),)


def test_the_classic_form_has_a_time_in_nanoseconds_and_https_in_other_letters() -> None:
    (config,) = read(classic(entry(httpTimeout=100_000_000, enableHttps=True))).extenders
    assert config.timeout_seconds == pytest.approx(0.1)
    assert not config.tls.verified


@pytest.mark.parametrize(
    ("fields", "verified"),
    [
        pytest.param({}, True, id="nothing said"),
        pytest.param({"enableHTTPS": True}, False, id="https, no authority"),
        pytest.param({"enableHTTPS": True, "tlsConfig": {"caFile": "/ca"}}, True, id="https, an authority"),
        pytest.param({"tlsConfig": {"insecure": True}}, False, id="insecure"),
    ],
)
def test_whether_certificates_are_verified(fields: Any, verified: bool) -> None:
    assert read(configuration(entry(**fields))).extenders[0].tls.verified is verified


def test_those_that_may_be_ignored_are_asked_last() -> None:
    urls = ["http://a", "http://b", "http://c"]
    entries = [{"urlPrefix": url, "ignorable": url == "http://a"} for url in urls]
    assert [each.url_prefix for each in read(configuration(*entries)).extenders] == ["http://b", "http://c", "http://a"]


@pytest.mark.parametrize("form", [configuration, classic])
@pytest.mark.parametrize(
    ("extenders", "fault"),
    [
        pytest.param(
            [entry(prioritizeVerb="p")],
            "extenders[0].weight: expected a positive weight with prioritizeVerb, got 0",
            id="no weight",
        ),
        pytest.param(
            [entry(prioritizeVerb="p", weight=-1)],
            "extenders[0].weight: expected a positive weight with prioritizeVerb, got -1",
            id="negative weight",
        ),
        pytest.param(
            [entry(bindVerb="b"), entry(), entry(bindVerb="b")],
            "extenders: expected at most one extender with bindVerb, got 2",
            id="two bind",
        ),
        pytest.param(
            [entry(managedResources=[{"name": "cpu"}])],
            "extenders[0].managedResources[0].name: expected an extended resource, like example.com/gpu, got 'cpu'",
            id="no extended resource",
        ),
        pytest.param(
            [entry(managedResources=[{"name": GPU}]), entry(managedResources=[{"name": GPU}])],
            f"extenders[1].managedResources[0].name: {GPU} is already managed",
            id="managed twice",
        ),
        pytest.param(
            [entry(tlsConfig={"insecure": True, "caFile": "/ca"})],
            "extenders[0].tlsConfig: insecure skips verification, so caFile and caData must not be set",
            id="insecure with authority",
        ),
        pytest.param(
            [entry(tlsConfig={"caData": "%"})],
            "extenders[0].tlsConfig.caData: expected PEM in base64, got '%'",
            id="no base64",
        ),
    ],
)
def test_faults(form: Any, extenders: list[Object], fault: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(form(*extenders))
    assert [each[: len(fault)] for each in caught.value.faults] == [fault]


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        pytest.param(
            configuration(entry(httpTimeout="5")),
            "extenders[0].httpTimeout: expected a duration, like 10s or 5m, got '5'",
            id="no unit",
        ),
        pytest.param(
            configuration(entry(), entry(filterVrb="f")),
            "extenders[1].filterVrb: unknown field (did you mean filterVerb?)",
            id="misspelt",
        ),
        pytest.param(
            configuration(entry(enableHttps=True)),
            "extenders[0].enableHttps: unknown field (did you mean enableHTTPS?)",
            id="letters of old",
        ),
        pytest.param(
            classic(entry(httpTimeout="5s")),
            "extenders[0].httpTimeout: expected a valid integer, got '5s'",
            id="classic: a text",
        ),
    ],
)
def test_faults_of_one_form(document: Object, fault: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(document)
    assert list(caught.value.faults) == [fault]


@pytest.mark.parametrize(
    ("fields", "config"),
    [
        pytest.param({"httpTimeout": "-5s"}, {"timeout_seconds": 86400.0}, id="no time limit"),
        pytest.param({"urlPrefix": "/scheduler"}, {"url_prefix": "/scheduler"}, id="a relative URL"),
        pytest.param({"urlPrefix": "http://[::1"}, {"url_prefix": "http://[::1"}, id="half an address"),
        pytest.param({"tlsConfig": {"certFile": "/c"}}, {"bind_verb": ""}, id="a certificate without a key"),
        pytest.param({"weight": -3}, {"weight": -3}, id="a weight that nothing uses"),
        pytest.param({"managedResources": None, "tlsConfig": None}, {"ignorable": False}, id="nulls"),
    ],
)
def test_what_kube_scheduler_accepts_is_accepted(fields: Object, config: Object) -> None:
    (read_config,) = read(configuration(entry(**fields))).extenders
    assert {name: getattr(read_config, name) for name in config} == config


def test_a_classic_policy_spells_extenders_in_any_case_and_adds_fields() -> None:
    """Go decoded these entries so until v1.22."""
    fields = {
        "apiVersion": "v1beta1",
        "URLPrefix": "http://a",
        "FilterVerb": "f",
        "Ignorable": True,
        "enablehttps": True,
        "TLSConfig": {"Insecure": True, "CaFile2": "x"},
        "ManagedResources": [{"Name": GPU, "IgnoredByScheduler": True, "x": 1}],
    }
    (config,) = read(classic(fields)).extenders
    assert (config.url_prefix, config.filter_verb, config.ignorable) == ("http://a", "f", True)
    assert (config.ignored_resources, config.tls.verified) == (frozenset({GPU}), False)


@pytest.mark.parametrize("form", [configuration, classic])
def test_resources_that_the_scheduler_ignores(form: Any) -> None:
    managed = [{"name": GPU, "ignoredByScheduler": True}]
    policy = read(form(entry(managedResources=managed)))
    (config,) = policy.extenders
    assert fit_of(policy.profiles[0]).ignored_resources == frozenset()  # `serve` is that extender, perhaps
    assert fit_of(ignoring(policy.profiles[0], config.ignored_resources)).ignored_resources == {GPU}
    assert ignoring(policy.profiles[0], frozenset()) is policy.profiles[0]


def fit_of(profile_: Any) -> NodeResourcesFitFilter:
    (fit,) = (each for each in profile_.predicates if isinstance(each, NodeResourcesFitFilter))
    return fit


def test_the_configuration_in_the_manifests() -> None:
    """`extender serve` may be given the configuration of the scheduler that calls it."""
    documents = yaml.safe_load_all((Path(__file__).parents[2] / "manifests/service/all.yaml").read_text())
    (held,) = (each["data"] for each in documents if each["kind"] == "ConfigMap")
    (config,) = load(held["kube-scheduler.yaml"]).extenders
    assert (config.bind_verb, config.timeout_seconds, config.node_cache_capable) == ("bind", 5.0, True)
    assert config.tls.verified
