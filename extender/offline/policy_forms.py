"""Reads a policy that is given as a path, a mapping or an object."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from extender.errors import ConfigurationError
from extender.framework.profile import Profiles
from extender.policy.library import Library
from extender.policy.loading import load, read
from extender.policy.policy import Policy

AnyPolicy = Profiles | Policy | Mapping[str, Any] | str | Path
"""A KubeSchedulerConfiguration or classic Policy: the path of its file, its content as a mapping, or as an object."""


def profiles_of(policy: AnyPolicy | None) -> Profiles | None:
    """Returns the rules of a policy; None for kube-scheduler's defaults.

    Python modules beside a policy's file are imported if the policy names rules in them.

    Raises:
        ConfigurationError: the policy has faults. If the policy is a file, each fault begins with its path.
        OSError: the file cannot be read.
    """
    match policy:
        case None | Profiles():
            return policy
        case Policy():
            return policy.scheduler_profiles()
        case Mapping():
            return read(policy).scheduler_profiles()
        case _:
            return _of_file(Path(policy))


def _of_file(path: Path) -> Profiles:
    try:
        return load(path.read_bytes(), Library(folder=str(path.parent.absolute()))).scheduler_profiles()
    except ConfigurationError as error:
        raise ConfigurationError([f"{path}: {fault}" for fault in error.faults]) from None
