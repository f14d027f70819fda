"""Which device taints a request tolerates. Source: resourceclaim.ToleratesTaint."""

from __future__ import annotations

from collections.abc import Iterable

from extender.model.devices.slices import DeviceTaint, DeviceToleration


def keeps_away(taint: DeviceTaint, tolerations: Iterable[DeviceToleration]) -> bool:
    """Whether none of the tolerations covers the taint."""
    return not any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
