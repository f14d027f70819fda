"""Lists the defaults of feature gates in other Kubernetes versions; `FeatureGates` has the current defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict

from extender.errors import ConfigurationError
from extender.policy.policy import parsed
from extender.table.features import BY_NAME, DEFAULT_FEATURES, FeatureGates

DEFAULTS: Mapping[str, Mapping[str, bool]] = {
    "1.35": {"NodeDeclaredFeatures": False, "StorageCapacityScoring": False, "VolumeLimitScaling": False},
    "1.36": {"StorageCapacityScoring": False, "VolumeLimitScaling": False},
    "1.37": {},
}
"""Version -> the gates whose default differs from `DEFAULT_FEATURES`; docs/versions.md has the table."""
_VERSION = re.compile(r"v?(\d+\.\d+)(\.\d+)?")


def upgraded(current: FeatureGates, target: str) -> FeatureGates:
    """Returns the gates after an upgrade to `target`.

    A gate that is not at the current version's default counts as set by a user. It keeps its value, unless `target`
    names the gate.

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
    # A recording does not say which gates were set explicitly, so a gate set to its default follows the new default.
    changed = {name for name, on in by_name(current).items() if on != by_name(DEFAULT_FEATURES)[name]}
    base = current
    for version in versions:
        if version not in DEFAULTS:
            raise ConfigurationError([f"Kubernetes {version}: expected one of {', '.join(DEFAULTS)}"])
        defaults = {name: on for name, on in DEFAULTS[version].items() if name not in changed}
        base = parsed(",".join(f"{name}={on}" for name, on in defaults.items()), current)
    return parsed(",".join(part for part in parts if not _VERSION.fullmatch(part)), base)


def changes(before: FeatureGates, after: FeatureGates) -> str:
    """Returns the gates of `after` that differ from `before`, as "A=true, B=false"; empty if all are equal."""
    old, new = by_name(before), by_name(after)
    return ", ".join(f"{name}={str(on).lower()}" for name, on in new.items() if on != old[name])


def by_name(features: FeatureGates) -> dict[str, bool]:
    """Returns the gates as {name in Kubernetes: True if the gate is on}."""
    values = asdict(features)
    return {name: values[field] for name, field in BY_NAME.items()}
