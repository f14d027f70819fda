"""`extender doctor --account --lease` on the rendered shapes: it passes, and fails without any verb that they grant.

In the shape `beside`, the account is bound to kube-scheduler's own roles too, which the doctor does not review.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import pytest
from click.testing import CliRunner

from extender.app.cluster_checks import SCHEDULE, SERVE, Installation, check_rights
from extender.cli.main import cli
from extender.cluster.credentials import credentials_of
from extender.cluster.kube_client import KubeClient
from extender.config.cluster_access import ClusterAccess
from tests.installation.helm import Helm
from tests.manifests.rendering import NAMES, NAMESPACE, SHAPES, Object, apply, notes
from tests.stock.api_client import RESOURCES
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.clients]


class Account:
    """The account of a shape, as the doctor reviews it with the flags that the chart's notes give."""

    def __init__(self, plane: ControlPlane, shape: str) -> None:
        self._plane = plane
        self.name = NAMES[shape]
        self.mode = SCHEDULE if shape == "scheduler" else SERVE
        names = [self.name, f"{self.name}-kube-scheduler"] if shape == "beside" else [self.name]
        self.leases = [f"{NAMESPACE}/{name}" for name in names]
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

    def unbind_kube_scheduler(self) -> None:
        """Takes kube-scheduler's own roles from the account, so that each verb of the shape's roles counts."""
        for role in ("kube-scheduler", "volume-scheduler") if self.name == NAMES["beside"] else ():
            self._plane.client.delete("ClusterRoleBinding", f"{NAMESPACE}:{self.name}:{role}")

    def lacks(self) -> str:
        """Returns what the doctor says is missing; "" if nothing is."""
        account = f"{NAMESPACE}/{self.name}"
        installation = Installation(self.mode, None, account, self.leases, self.service)
        found = {each.check: each for each in check_rights(self._client, installation)}
        assert "too-many-rights" not in found
        return found["rights"].message if found["rights"].level == "fail" else ""

    def put(self, role: Object) -> None:
        metadata = role["metadata"]
        path = RESOURCES[role["kind"]].path(metadata.get("namespace"), metadata["name"])
        self._plane.client.request("PUT", path, {**role, "metadata": {**metadata, "resourceVersion": None}})


def weakened(role: Object) -> Iterator[tuple[str, Object]]:
    """Yields (right, role without it) for each verb on each resource, and name if there are any, that it grants."""
    for index, rule in enumerate(role["rules"]):
        (group,) = rule["apiGroups"]
        rights = list(product(rule["verbs"], rule["resources"], rule.get("resourceNames", [""])))
        for right in rights:
            weaker: Object = copy.deepcopy(role)
            weaker["rules"][index : index + 1] = [granting(group, *other) for other in rights if other != right]
            verb, resource, name = right
            yield " ".join(filter(None, (verb, f"{resource}{'.' if group else ''}{group}", name))), weaker


def granting(group: str, verb: str, resource: str, name: str) -> Object:
    names = {"resourceNames": [name]} if name else {}
    return {"apiGroups": [group], "resources": [resource], "verbs": [verb], **names}


@pytest.fixture
def account(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Iterator[Account]:
    apply(control_plane, request.param)
    account = Account(control_plane, request.param)
    yield account
    account.close()


@pytest.mark.parametrize("account", SHAPES, indirect=True)
def test_each_verb_of_a_shape_is_asked_for_by_name(account: Account) -> None:

    def is_lacked(right: str) -> bool:
        return right in account.lacks()

    account.unbind_kube_scheduler()
    assert wait_until(lambda: account.lacks() == ""), account.lacks()
    for role in account.roles():
        for right, weaker in weakened(role):
            account.put(weaker)
            assert wait_until(partial(is_lacked, right)), f"nothing uses {right}"
        account.put(role)
        assert wait_until(lambda: account.lacks() == "")


def install(control_plane: ControlPlane, shape: str) -> None:
    Helm(control_plane).install(NAMES[shape], f"--set=shape={shape}")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("installed", [pytest.param(install, id="chart"), pytest.param(apply, id="manifests")])
def test_the_command_in_the_notes_finds_nothing_about_rights(
    control_plane: ControlPlane, stock_binaries: Binaries, installed: Callable[[ControlPlane, str], object], shape: str
) -> None:
    installed(control_plane, shape)
    command = notes(stock_binaries, {"shape": shape, "fullnameOverride": NAMES[shape]}).splitlines()[-1].split()[1:]
    flags = ["--kubeconfig", str(control_plane.kubeconfig), "-o", "json"]
    found = json.loads(CliRunner().invoke(cli, [*command, *flags]).stdout)["findings"]
    levels = {each["check"]: each["level"] for each in found}
    assert (levels["rights"], "too-many-rights" in levels) == ("ok", False)
