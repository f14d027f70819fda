"""The command `extender reference`: everything a user can set or read, from the tables that the code itself goes by."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import click
from pydantic import BaseModel

Row = Mapping[str, str]


@click.command()
@click.argument("topic", type=click.Choice(("settings", "plugins", "policy-names", "metrics")))
@click.option("-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True)
def reference(topic: str, output: str) -> None:
    """List every setting, plugin with its arguments, classic policy name, or metric.

    \b
      extender reference settings          key in the file, variable, flag, default, meaning
      extender reference plugins           for KubeSchedulerConfiguration: plugins, weights, pluginConfig
      extender reference policy-names      for the classic kind: Policy
      extender reference metrics -o json
    """
    rows = TOPICS[topic]()
    click.echo(json.dumps(rows, indent=2) if output == "json" else _table(rows))


def settings() -> Sequence[Row]:
    """Every setting as its three sources know it."""
    from extender.settings import OPTIONS

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


def plugins() -> Sequence[Row]:
    """Every in-tree plugin, and a row for each of its arguments."""
    from extender.engine.registry import IN_TREE

    rows: list[Row] = []
    for plugin in IN_TREE.values():
        kinds = [kind for kind, made in (("filter", plugin.predicate), ("score", plugin.priority)) if made]
        weight = str(plugin.weight) if plugin.priority else ""
        rows.append(
            {"PLUGIN": plugin.name, "RULES": ", ".join(kinds) or "-", "WEIGHT": weight, "ARGUMENT": "", "DEFAULT": ""}
        )
        rows += [
            {"PLUGIN": plugin.name, "RULES": "", "WEIGHT": "", "ARGUMENT": name, "DEFAULT": default}
            for name, default in _arguments(plugin.arguments)
        ]
    return rows


def policy_names() -> Sequence[Row]:
    """Every predicate and priority name of the classic policy."""
    from extender.engine.policy import classic_names

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
    from extender.web.metrics import SERIES
    from extender.web.scheduler_metrics import SCHEDULER_SERIES

    return [
        {"METRIC": series.name, "TYPE": series.kind, "LABELS": ", ".join(series.labels), "MEANING": series.help}
        for series in (*SERIES.values(), *SCHEDULER_SERIES.values())
    ]


TOPICS: Mapping[str, Callable[[], Sequence[Row]]] = {
    "settings": settings,
    "plugins": plugins,
    "policy-names": policy_names,
    "metrics": metrics,
}


def _arguments(model: type[BaseModel]) -> list[tuple[str, str]]:
    header = ("api_version", "kind")
    fields = model.model_fields.items()
    return [
        (field.alias or name, _default(field.get_default(call_default_factory=True)))
        for name, field in fields
        if name not in header
    ]


def _default(value: object) -> str:
    if value is None or value == () or value == "":
        return "-"
    if isinstance(value, BaseModel):
        return json.dumps(value.model_dump(mode="json", by_alias=True, exclude_none=True))
    if isinstance(value, list | tuple):
        return ", ".join(map(_default, value))
    return str(value)


def _table(rows: Sequence[Row]) -> str:
    columns = list(rows[0])
    widths = {column: max(len(column), *(len(row[column]) for row in rows)) for column in columns}
    lines = [dict(zip(columns, columns, strict=True)), *rows]
    return "\n".join("  ".join(line[column].ljust(widths[column]) for column in columns).rstrip() for line in lines)
