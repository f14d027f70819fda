"""Makes the API server deny some requests, by a ValidatingAdmissionPolicy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

_GROUP = "/apis/admissionregistration.k8s.io/v1"
_NAME = "denied-by-test"


@contextmanager
def denying(
    plane: ControlPlane, operation: str, resource: str, validation: dict[str, Any], is_in_force: Callable[[], bool]
) -> Iterator[None]:
    """Denies core requests that fail the validation; begins when `is_in_force`, and ends when it is not any more."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    made = {"policies": policy, "policybindings": {"policyName": _NAME, "validationActions": ["Deny"]}}
    for kind, spec in made.items():
        plane.client.request("POST", f"{_GROUP}/validatingadmission{kind}", {"metadata": {"name": _NAME}, "spec": spec})
    try:
        assert wait_until(is_in_force)
        yield
    finally:
        for kind in made:
            plane.client.request("DELETE", f"{_GROUP}/validatingadmission{kind}/{_NAME}")
        assert wait_until(lambda: not is_in_force())
