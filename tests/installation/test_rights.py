"""`extender doctor --account --lease` on the rendered shapes: it passes, and fails without any verb that they grant."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from extender.app.doctor.cluster_checks import SCHEDULE, SERVE, check_rights
from extender.cli.main import cli
from extender.cluster.http.credentials import credentials_of
from extender.cluster.http.kube_client import KubeClient
from extender.config.cluster_access import ClusterAccess
from tests.manifests.rendering import NAMES, NAMESPACE, SHAPES, Object, apply, notes
from tests.stock.api_client import RESOURCES
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock


class Account:
    """The account of a shape, as the doctor reviews it with the flags that the chart's notes give."""

    def __init__(self, plane: ControlPlane, shape: str) -> None:
        self._plane = plane
        self.name = NAMES[shape]
        self.mode = SCHEDULE if shape == "scheduler" else SERVE
        self.lease = f"{NAMESPACE}/{self.name}" + ("-kube-scheduler" if shape == "beside" else "")
        self.service = self.name if shape == "service" else ""
        self._client = KubeClient(credentials_of(ClusterAccess((plane.kubeconfig,))))
        self.close = self._client.close

    def roles(self) -> list[Object]:
        """Returns the roles that the shape brings, in the cluster and in its namespace."""
        client = self._plane.client
        return [
            client.get("ClusterRole", f"{NAMESPACE}:{self.name}"),
            client.get("Role", self.name, NAMESPACE),
        ]

    def also_granted(self) -> set[tuple[str, str]]:
        """Returns what kube-scheduler's own roles grant, to which the shape beside is bound too."""
        names = ("system:kube-scheduler", "system:volume-scheduler") if self.name == NAMES["beside"] else ()
        rules = [rule for name in names for rule in self._plane.client.get("ClusterRole", name)["rules"]]
        return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}

    def lacks(self) -> str:
        """Returns what the doctor says is missing; "" if nothing is."""
        account = f"{NAMESPACE}/{self.name}"
        found = {each.check: each for each in check_rights(self._client, self.mode, account, self.lease, self.service)}
        assert "too-many-rights" not in found
        return found["rights"].message if found["rights"].level == "fail" else ""

    def put(self, role: Object) -> None:
        metadata = role["metadata"]
        path = RESOURCES[role["kind"]].path(metadata.get("namespace"), metadata["name"])
        self._plane.client.request("PUT", path, {**role, "metadata": {**metadata, "resourceVersion": None}})


def weakened(role: Object) -> Iterator[tuple[str, str, Object]]:
    """Yields (resource, verb, role without it) for each verb on each resource that the role grants."""
    for index, rule in enumerate(role["rules"]):
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                weaker: Object = copy.deepcopy(role)
                others: list[Any] = [each for each in rule["resources"] if each != resource]
                rest = [each for each in rule["verbs"] if each != verb]
                replaced = [{**rule, "resources": others}, {**rule, "resources": [resource], "verbs": rest}]
                weaker["rules"][index : index + 1] = [each for each in replaced if each["resources"] and each["verbs"]]
                yield resource, verb, weaker


@pytest.fixture
def account(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Iterator[Account]:
    apply(control_plane, request.param)
    account = Account(control_plane, request.param)
    yield account
    account.close()


@pytest.mark.parametrize("account", SHAPES, indirect=True)
def test_each_verb_of_a_shape_is_asked_for_by_name(account: Account) -> None:
    assert wait_until(lambda: account.lacks() == ""), account.lacks()
    others = account.also_granted()
    for role in account.roles():
        for resource, verb, weaker in weakened(role):
            if (resource, verb) in others:
                continue
            account.put(weaker)
            assert wait_until(account.lacks), f"nothing uses {verb} {resource}"
            assert f"{verb} {resource}" in account.lacks()
        account.put(role)
        assert wait_until(lambda: account.lacks() == "")


@pytest.mark.parametrize("shape", SHAPES)
def test_the_command_in_the_notes_finds_nothing_about_rights(
    control_plane: ControlPlane, stock_binaries: Binaries, shape: str
) -> None:
    apply(control_plane, shape)
    command = notes(stock_binaries, {"shape": shape, "fullnameOverride": NAMES[shape]}).splitlines()[-1].split()[1:]
    flags = ["--kubeconfig", str(control_plane.kubeconfig), "-o", "json"]
    found = json.loads(CliRunner().invoke(cli, [*command, *flags]).stdout)["findings"]
    levels = {each["check"]: each["level"] for each in found}
    assert (levels["rights"], "too-many-rights" in levels) == ("ok", False)
