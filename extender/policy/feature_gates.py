"""Feature gates as users give them: in a policy's featureGates, and by --feature-gates, which goes before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from extender.policy.faults import Faults
from extender.table.features import BY_NAME, DEFAULT_FEATURES, FeatureGates

_SWITCHES = {"true": True, "false": False}


def with_gates(
    gates: Mapping[str, bool], faults: Faults, path: str, base: FeatureGates = DEFAULT_FEATURES
) -> FeatureGates:
    """Returns `base` with the gates switched as given by stock's names; what is no gate here is noted."""
    for name in gates.keys() - BY_NAME.keys():
        faults.add(f"{path}.{name}", "there is no such gate, or it decides nothing here", name, BY_NAME)
    return replace(base, **{field: gates[name] for name, field in BY_NAME.items() if name in gates})


def parsed(text: str, base: FeatureGates = DEFAULT_FEATURES) -> FeatureGates:
    """Returns `base` with the gates of a text like "A=true,B=false", as kube-scheduler's --feature-gates.

    Raises:
        ConfigurationError: with every fault.
    """
    faults = Faults()
    gates: dict[str, bool] = {}
    for part in filter(None, text.split(",")):
        name, _, value = (each.strip() for each in part.partition("="))
        if value.lower() not in _SWITCHES:
            faults.add(f"featureGates.{name}", f"want {name}=true or {name}=false, not {part.strip()!r}")
        else:
            gates[name] = _SWITCHES[value.lower()]
    features = with_gates(gates, faults, "featureGates", base)
    faults.raise_if_any()
    return features
