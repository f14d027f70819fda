"""The other extenders that a policy names. Source: upstream validateExtenders, scheduler.buildExtenders."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from extender.framework.profile import Profile
from extender.model.extenders import ExtenderConfig
from extender.plugins.node_resources.fit import NodeResourcesFitFilter
from extender.policy.extender_schema import ExtenderSpec, LegacyExtenderSpec
from extender.policy.faults import Faults


def read_extenders(specs: Sequence[ExtenderSpec | LegacyExtenderSpec], faults: Faults) -> tuple[ExtenderConfig, ...]:
    """Returns the extenders in the order in which they are asked: ignorable ones come last."""
    managed: set[str] = set()
    for index, spec in enumerate(specs):
        path = f"extenders[{index}]"
        if spec.prioritize_verb and spec.weight <= 0:
            faults.add(f"{path}.weight", f"want a positive weight for prioritizeVerb, not {spec.weight}")
        for position, resource in enumerate(spec.managed_resources):
            if resource.name in managed:
                faults.add(f"{path}.managedResources[{position}].name", f"{resource.name} is managed already")
            managed.add(resource.name)
    if (binders := sum(bool(spec.bind_verb) for spec in specs)) > 1:
        faults.add("extenders", f"want one that binds (bindVerb) at most, not {binders}")
    return tuple(spec.config for spec in sorted(specs, key=lambda spec: spec.ignorable))


def ignoring(profile: Profile, resources: Collection[str]) -> Profile:
    """Returns the profile, with these extended resources left to the extenders that manage them.

    They take the place of the ignoredResources of NodeResourcesFit's arguments, as upstream.
    """
    if not resources:
        return profile
    predicates = [
        replace(each, ignored_resources=frozenset(resources)) if isinstance(each, NodeResourcesFitFilter) else each
        for each in profile.predicates
    ]
    return replace(profile, predicates=predicates)
