"""Compares and changes the version of Kubernetes that is followed; `extender.table.features` lists the versions."""

from __future__ import annotations

import re
from dataclasses import replace

from extender.errors import ConfigurationError
from extender.policy.policy import parsed
from extender.table.features import BY_NAME, RELEASED, VERSIONS, FeatureGates, features_of

_VERSION = re.compile(r"v?(\d+\.\d+)(\.\d+)?")
_REPORTED = re.compile(r"v?(\d+)\.(\d+)")


def followed(reported: str) -> tuple[str, str | None]:
    """Returns the version to follow in a cluster whose API server reports e.g. v1.38.2-gke.7, and a warning or None."""
    match = _REPORTED.match(reported)
    if match is None:
        return RELEASED, f"the cluster does not say its version, so it counts as {RELEASED}"
    minor = f"{match[1]}.{match[2]}"
    if minor in VERSIONS:
        return minor, None
    oldest, *_, newest = VERSIONS
    is_newer = (int(match[1]), int(match[2])) > tuple(map(int, newest.split(".")))
    nearest = newest if is_newer else oldest
    return nearest, f"Kubernetes {minor} is {'newer' if is_newer else 'older'} than {nearest}, and counts as {nearest}"


def upgraded(current: FeatureGates, target: str) -> FeatureGates:
    """Returns the gates after an upgrade to `target`.

    Gates that a user has set keep their values, unless `target` names them or its version does not have them.

    Args:
        current: the gates in force before.
        target: a version such as 1.36, or gates such as "A=true,B=false", or both, separated by commas.

    Raises:
        ConfigurationError: the version or a gate is not known.
    """
    parts = [part.strip() for part in target.split(",") if part.strip()]
    versions = [match[1] for part in parts if (match := _VERSION.fullmatch(part))]
    if len(versions) > 1 or not parts:
        raise ConfigurationError([f"{target!r}: expected a version such as 1.36, or gates such as A=true,B=false"])
    base = current
    for version in versions:
        if version not in VERSIONS:
            raise ConfigurationError([f"Kubernetes {version}: expected one of {', '.join(VERSIONS)}"])
        base = features_of(replace(current.choices, version=version))
    return parsed(",".join(part for part in parts if not _VERSION.fullmatch(part)), base)


def changes(before: FeatureGates, after: FeatureGates) -> str:
    """Returns what of `after` differs from `before`, as "Kubernetes 1.38, A=true, B=false"; empty if all are equal."""
    old, new, gone = by_name(before), by_name(after), VERSIONS[after.version].gone
    gates = [f"{name}={str(on).lower()}" for name, on in new.items() if on != old[name] and name not in gone]
    return ", ".join([*([f"Kubernetes {after.version}"] if after.behaviours != before.behaviours else []), *gates])


def by_name(features: FeatureGates) -> dict[str, bool]:
    """Returns the gates as {name in Kubernetes: True if the gate is on}."""
    return {name: getattr(features, field) for name, field in BY_NAME.items()}
