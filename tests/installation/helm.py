"""Helm against a running control plane."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import yaml

from tests.manifests.rendering import CHART, NAMESPACE, Object
from tests.stock.control_plane import ControlPlane


class HelmError(Exception):
    """Helm refused; the message is what it said."""


class Helm:
    """Runs helm as an administrator of the control plane."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._plane = control_plane

    def __call__(self, command: str, name: str, *flags: str, namespace: str = NAMESPACE) -> str:
        """Returns what helm prints. Raises HelmError."""
        words: list[Any] = [self._plane.binaries["helm"], "--kubeconfig", self._plane.kubeconfig, command, name]
        ended = subprocess.run(
            [*words, *flags, "--namespace", namespace], capture_output=True, text=True, check=False, timeout=120
        )
        if ended.returncode:
            raise HelmError(ended.stderr)
        return ended.stdout

    def install(self, name: str, *flags: str, namespace: str = NAMESPACE) -> str:
        return self("install", name, str(CHART), "--create-namespace", *flags, namespace=namespace)

    def upgrade(self, name: str, *flags: str, namespace: str = NAMESPACE) -> str:
        return self("upgrade", name, str(CHART), "--reset-then-reuse-values", *flags, namespace=namespace)

    def uninstall(self, name: str, *flags: str, namespace: str = NAMESPACE) -> str:
        return self("uninstall", name, *flags, namespace=namespace)

    def manifest(self, name: str, namespace: str = NAMESPACE) -> str:
        """Returns the objects of a release as YAML."""
        return self("get", "manifest", name, namespace=namespace)


def there(control_plane: ControlPlane, manifest: str) -> list[Object]:
    """Returns the objects of a manifest as the API server has them. Raises AssertionError if one is missing."""
    items: list[Object] = json.loads(control_plane.kubectl("get", "-o", "json", "-f", "-", stdin=manifest))["items"]
    assert len(items) == sum(1 for each in yaml.safe_load_all(manifest) if each)
    return items
