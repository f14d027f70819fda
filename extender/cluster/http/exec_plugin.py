"""Credential plugins of kubeconfigs: a command that prints a token or a client certificate (KEP-541)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

PLUGIN_SECONDS = 20.0
_SHOWN_CHARACTERS = 300


class ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A plugin's grant; upstream ExecCredentialStatus. `expiration_timestamp` is RFC 3339, "" without an end."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    status: ExecStatus


_CREDENTIAL = msgspec.json.Decoder(_ExecCredential)


def run_plugin(spec: Mapping[str, Any], cluster: Mapping[str, Any], directory: Path) -> ExecStatus:
    """Runs the command of `spec`, a kubeconfig's `exec`, in `directory`, and returns what it grants.

    Raises:
        OSError, ValueError, KeyError, TypeError: it cannot be run, fails, hangs for `PLUGIN_SECONDS` or grants nothing.
    """
    info: dict[str, Any] = {"interactive": False}
    if spec.get("provideClusterInfo"):
        info["cluster"] = cluster
    request = {"apiVersion": spec["apiVersion"], "kind": "ExecCredential", "spec": info}
    environment = {each["name"]: each["value"] for each in spec.get("env") or ()}
    environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(request).decode()
    command = [spec["command"], *(spec.get("args") or ())]
    output = _output_of(command, {**os.environ, **environment}, directory)
    try:
        credential = _CREDENTIAL.decode(output)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"credential plugin {command[0]}: its output is no ExecCredential: {error}") from None
    if credential.api_version != spec["apiVersion"]:
        raise ValueError(f"credential plugin {command[0]} speaks {credential.api_version}, not {spec['apiVersion']}")
    status = credential.status
    if not (status.token or (status.client_certificate_data and status.client_key_data)):
        raise ValueError(f"credential plugin {command[0]} grants neither a token nor a certificate with its key")
    return status


def _output_of(command: list[str], environment: Mapping[str, str], directory: Path) -> bytes:
    # A group of its own, so that what the plugin has started ends with it.
    process = subprocess.Popen(  # noqa: S603  the kubeconfig names it, as it names whom to trust
        command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        output, complaint = process.communicate(timeout=PLUGIN_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise ValueError(f"credential plugin {command[0]} did not end in {PLUGIN_SECONDS:g} s") from None
    if process.returncode:
        said = complaint.decode("utf-8", "replace").strip()[:_SHOWN_CHARACTERS]
        raise ValueError(f"credential plugin {command[0]} failed with status {process.returncode}: {said}")
    return output
