"""The command `extender reference`: everything a user can set or read, from the tables that the code itself goes by."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args, get_origin

import click
from pydantic import BaseModel

from extender.runtime.text import aligned

_VERB = "of k8s.io/kube-scheduler/extender/v1; --prefix and the verb's name are settings"
_ROWS = (
    ("POST", "/scheduler/filter", "serve", f"ExtenderArgs, which nodes are feasible; {_VERB}"),
    ("POST", "/scheduler/prioritize", "serve", f"ExtenderArgs, scores of 0 to 10; {_VERB}"),
    ("POST", "/scheduler/preempt", "serve", f"ExtenderPreemptionArgs, which victims would do; {_VERB}"),
    ("POST", "/scheduler/bind", "serve", f"ExtenderBindingArgs, checks, books and binds; {_VERB}"),
    ("GET", "/livez", "serve, schedule", "200 while the process lives; ?verbose lists the checks"),
    ("GET", "/healthz", "serve, schedule", "the same as /livez, by its older name"),
    ("GET", "/readyz", "serve, schedule", "200 once all kinds are in the cache in full; ?verbose tells of each check"),
    ("GET", "/metrics", "serve, schedule", "series for Prometheus; serve has these four at --metrics-bind too"),
    ("POST", "/simulate", "serve, schedule", "with --simulate: would pods fit, with nodes that do not exist yet"),
    ("GET", "/ui", "serve, schedule", "pages for people, each JSON too: pods that wait, a pod, nodes, configurations"),
    ("GET", "/debug/decisions", "serve, schedule", "the last decisions about each pod, or of ?pod=NAMESPACE/NAME"),
    ("GET", "/debug/cache/dump", "serve, schedule", "nodes, pods and what they add up to, as the cache has them"),
    ("POST", "/debug/cache/compare", "serve, schedule", "finds what differs from the API server, and puts it right"),
    ("POST", "/debug/log-level", "serve, schedule", "logs from now on what is as severe as ?level=debug, and above"),
    ("GET", "/configz", "serve, schedule", "the settings in force, from file, environment and flags"),
    ("GET", "/debug/pods", "schedule", "every pod that it has yet to place, which extender status prints"),
)  # fmt: skip
Row = Mapping[str, str]
_NAMES = ("settings", "policy", "plugins", "policy-names", "endpoints", "metrics", "log")


def endpoints() -> Sequence[Mapping[str, str]]:
    """Every path that `extender serve` and `extender schedule` serve; pages below /ui/ are left out."""
    return [dict(zip(("METHOD", "PATH", "SERVED BY", "MEANING"), row, strict=True)) for row in _ROWS]


@click.command()
@click.argument("topic", type=click.Choice(_NAMES))
@click.option("-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True)
def reference(topic: str, output: str) -> None:
    """List every setting, field of a policy, plugin, classic name, endpoint, metric, or field of a log line.

    \b
      extender reference settings          key in the file, variable, flag, default, meaning
      extender reference policy            every field of a file for --policy, in both of its forms
      extender reference plugins           for KubeSchedulerConfiguration: plugins, weights, pluginConfig
      extender reference policy-names      for the classic kind: Policy
      extender reference endpoints         paths of extender serve and extender schedule
      extender reference metrics -o json
      extender reference log               what a line of the log holds
    """
    rows = TOPICS[topic]()
    click.echo(json.dumps(rows, indent=2) if output == "json" else _table(rows))


def settings() -> Sequence[Row]:
    """Every setting as its three sources know it."""
    from extender.config.settings import OPTIONS

    return [
        {
            "KEY": option.key,
            "VARIABLE": option.variable,
            "FLAG": option.flag,
            "DEFAULT": _default(option.default),
            "MEANING": option.description,
        }
        for option in OPTIONS.values()
    ]


def policy() -> Sequence[Row]:
    """Every field of a KubeSchedulerConfiguration and of a classic Policy."""
    from extender.policy.classic.names import PolicySpec, PredicateArgument, PriorityArgument
    from extender.policy.configuration.schema import ConfigurationSpec

    forms = (
        ("KubeSchedulerConfiguration", "", ConfigurationSpec),
        ("Policy", "", PolicySpec),
        ("Policy", "predicates[].argument.", PredicateArgument),
        ("Policy", "priorities[].argument.", PriorityArgument),
    )
    return [{"FORM": form, **row} for form, prefix, model in forms for row in _fields(model, prefix)]


def plugins() -> Sequence[Row]:
    """Every in-tree plugin, and a row for each of its arguments."""
    from extender.plugins.registry import IN_TREE

    rows: list[Row] = []
    for plugin in IN_TREE.values():
        kinds = [kind for kind, made in (("filter", plugin.predicate), ("score", plugin.priority)) if made]
        weight = str(plugin.weight) if plugin.priority else ""
        about = {"PLUGIN": plugin.name, "RULES": ", ".join(kinds) or "-", "WEIGHT": weight}
        rows.append({**about, "ARGUMENT": "", "DEFAULT": "", "MEANING": ""})
        rows += [{**about, "RULES": "", "WEIGHT": "", **argument} for argument in _arguments(plugin.arguments)]
    return rows


def policy_names() -> Sequence[Row]:
    """Every predicate and priority name of the classic policy."""
    from extender.policy.classic import names as classic_names

    by_argument = {
        "predicate": ("a name of your own with serviceAffinity or labelsPresence",),
        "priority": (
            "a name of your own with serviceAntiAffinity, labelPreference or requestedToCapacityRatioArguments",
        ),
    }
    named = {"predicate": classic_names.PREDICATES, "priority": classic_names.priorities(1)}
    return [{"KIND": kind, "NAME": name} for kind in named for name in (*named[kind], *by_argument[kind])]


def metrics() -> Sequence[Row]:
    """Every series at /metrics; those of scheduler_... at that of `extender schedule` only."""
    from extender.web.telemetry.series import SCHEDULER_SERIES, SERIES

    return [
        {"METRIC": series.name, "TYPE": series.kind, "LABELS": ", ".join(series.labels), "MEANING": series.help}
        for series in (*SERIES.values(), *SCHEDULER_SERIES.values())
    ]


def log_fields() -> Sequence[Row]:
    """Every field that a line of the log may have."""
    from extender.web.telemetry.log import FIELDS

    return [{"FIELD": name, "MEANING": meaning} for name, meaning in FIELDS.items()]


TOPICS: Mapping[str, Callable[[], Sequence[Row]]] = {
    "settings": settings,
    "policy": policy,
    "plugins": plugins,
    "policy-names": policy_names,
    "endpoints": endpoints,
    "metrics": metrics,
    "log": log_fields,
}


def _fields(model: type[BaseModel], prefix: str) -> Iterator[Row]:
    """The fields of `model`, and those of the models in them, by their paths in the file."""
    from extender.policy.configuration.schema import PluginsSpec

    if model is PluginsSpec:
        yield from _fields(next(_models(next(iter(model.model_fields.values())).annotation)), f"{prefix}POINT.")
        return
    for name, field in model.model_fields.items():
        path, nested = f"{prefix}{field.alias or name}", next(_models(field.annotation), None)
        has_default = not (field.is_required() or nested)
        default = _default(field.get_default(call_default_factory=True)) if has_default else "-"
        yield {"FIELD": path, "DEFAULT": default or "-", "MEANING": field.description or ""}
        if nested:
            yield from _fields(nested, f"{path}{'[]' if get_origin(_bare(field.annotation)) is tuple else ''}.")


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """The models that a field's type is made of, those apart that nobody checks."""
    from extender.framework.schema import Ignored

    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and not issubclass(annotation, Ignored):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _bare(annotation: object) -> object:
    """The type less the None that it may be instead."""
    return next((part for part in get_args(annotation) if get_origin(part) is tuple), annotation)


def _arguments(model: type[BaseModel]) -> Iterator[Row]:
    for name, field in model.model_fields.items():
        if name not in ("api_version", "kind"):
            default = _default(field.get_default(call_default_factory=True))
            yield {"ARGUMENT": field.alias or name, "DEFAULT": default, "MEANING": field.description or ""}


def _default(value: object) -> str:
    if value is None or value == () or value == "":
        return "-"
    if isinstance(value, BaseModel):
        return json.dumps(value.model_dump(mode="json", by_alias=True, exclude_none=True))
    if isinstance(value, list | tuple):
        return ", ".join(map(_default, value))
    return str(value)


def _table(rows: Sequence[Row]) -> str:
    return "\n".join(aligned([[*rows[0]], *([*row.values()] for row in rows)]))
