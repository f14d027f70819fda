"""DynamicResources: the devices that a pod claims must be free on the node. Source: upstream dynamicresources."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator

from extender.devices.claims import NAME
from extender.framework.plugin import FILTER, PRE_FILTER, SCORE, Arguments, Plugin
from extender.framework.schema import duration, duration_seconds
from extender.plugins.dynamic_resources.hints import INTERESTS
from extender.plugins.dynamic_resources.predicate import DynamicResourcesFilter
from extender.plugins.dynamic_resources.priority import DynamicResourcesScore
from extender.runtime.clock import SystemClock


class DynamicResourcesArgs(Arguments):
    kind: Literal["DynamicResourcesArgs"] = "DynamicResourcesArgs"
    filter_timeout: Annotated[str, AfterValidator(duration(0))] = "10s"
    """The time that the allocator may take for one node; 0: no limit."""
    binding_timeout: Annotated[str, AfterValidator(duration(1))] = "10m"
    """The time that extender schedule waits for binding conditions of devices."""


_CLOCK = SystemClock()
PLUGIN = Plugin(
    NAME,
    DynamicResourcesArgs,
    lambda args: DynamicResourcesFilter(
        duration_seconds(args.binding_timeout), _CLOCK, duration_seconds(args.filter_timeout)
    ),
    lambda _: DynamicResourcesScore(),
    weight=2,
    points=frozenset(("preEnqueue", "postFilter", "podGroupPostFilter", "reserve", "preBind")),
    needs=((FILTER, PRE_FILTER), (SCORE, PRE_FILTER)),
    scores_filtered=True,
    interests=INTERESTS,
)
