"""Says how to reach a cluster: kubectl's options --kubeconfig, --context, --as and --as-group."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from extender.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The kubeconfig files that lead to a cluster, and the user to act as.

    Attributes:
        kubeconfigs: the files, merged by kubectl's rules; () means the service account of this process's pod.
        context: a context of these files; None means their current context.
        user: the user to act as; None means `as` in the kubeconfig.
        groups: the groups to act as a member of; () means `as-groups` in the kubeconfig.
    """

    kubeconfigs: tuple[Path, ...] = ()
    context: str | None = None
    user: str | None = None
    groups: tuple[str, ...] = ()


IN_CLUSTER = ClusterAccess()


def listed(paths: Path | str) -> tuple[Path, ...]:
    """Splits a list of paths, in the form of $KUBECONFIG, and drops duplicates."""
    return tuple(dict.fromkeys(Path(path) for path in str(paths).split(os.pathsep) if path))


def with_default_files(access: ClusterAccess) -> ClusterAccess | None:
    """Adds the files of $KUBECONFIG, or ~/.kube/config, if `access` has no files. Returns None if no file exists."""
    if access.kubeconfigs:
        return access
    files = listed(os.environ.get("KUBECONFIG") or Path.home() / ".kube/config")
    return replace(access, kubeconfigs=files) if any(path.is_file() for path in files) else None


def live_access(access: ClusterAccess, arguments: str = "--kubeconfig FILE") -> ClusterAccess:
    """Returns how to reach the live cluster.

    Args:
        arguments: the options that the error message suggests, such as "--kubeconfig FILE".

    Raises:
        ConfigurationError: there is no kubeconfig.
    """
    complete = with_default_files(access)
    if complete is None:
        missing = os.environ.get("KUBECONFIG") or "~/.kube/config"
        raise ConfigurationError([f"no cluster: {missing} does not exist; give {arguments}"])
    return complete
