"""The command `extender reference`: lists settings, fields and metrics from the tables that the code itself uses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args, get_origin

import click
from pydantic import BaseModel

from extender.cli.document_kinds import DocumentKind, headed
from extender.cli.output import Output, output_option, say_lines, show
from extender.config.settings import Option
from extender.errors import ConfigurationError
from extender.runtime.text import aligned

_VERB = "types of k8s.io/kube-scheduler/extender/v1; the settings can change prefix and name"
_ROWS = (
    ("POST", "/scheduler/filter", "serve", f"takes ExtenderArgs, returns the feasible nodes; {_VERB}"),
    ("POST", "/scheduler/prioritize", "serve", f"takes ExtenderArgs, returns scores from 0 to 10; {_VERB}"),
    ("POST", "/scheduler/preempt", "serve", f"takes ExtenderPreemptionArgs, returns the victims; {_VERB}"),
    ("POST", "/scheduler/bind", "serve", f"takes ExtenderBindingArgs, checks the node and binds the pod; {_VERB}"),
    ("GET", "/livez", "serve, schedule", "200 while the process is healthy; ?verbose lists the checks"),
    ("GET", "/healthz", "serve, schedule", "the older name of /livez"),
    ("GET", "/readyz", "serve, schedule", "200 once the cache is complete; ?verbose lists the checks"),
    ("GET", "/metrics", "serve, schedule", "metrics for Prometheus; serve has it and the probes at --metrics-bind too"),
    ("POST", "/simulate", "serve, schedule", "with --simulate: says if pods would fit, also on new nodes"),
    ("GET", "/", "serve, schedule", "leads to /ui"),
    ("GET", "/ui", "serve, schedule", "pages for a browser, also as JSON; they show the pending pods and the nodes"),
    ("GET", "/debug/decisions", "serve, schedule", "last decision about each pod; ?pod=NAMESPACE/NAME: all about one"),
    ("GET", "/debug/cache/dump", "serve, schedule", "the nodes, pods and totals in the cache"),
    ("POST", "/debug/cache/compare", "serve, schedule", "compares the cache with the API server, and corrects it"),
    ("POST", "/debug/log-level", "serve, schedule", "sets the log level, such as ?level=debug"),
    ("GET", "/configz", "serve, schedule", "the settings in force: from file, environment and flags"),
    ("GET", "/debug/pods", "schedule", "the pods it has not placed yet, as extender status prints them"),
)  # fmt: skip
Row = Mapping[str, str]
_SCHEMA = "schema"
_NAMES = ("settings", "policy", "plugins", "policy-names", "endpoints", "metrics", "log", "documents")


def endpoints() -> Sequence[Mapping[str, str]]:
    """Returns a row for each HTTP path of `extender serve` and `extender schedule`, except the pages below /ui/."""
    return [dict(zip(("METHOD", "PATH", "SERVED BY", "MEANING"), row, strict=True)) for row in _ROWS]


@click.command()
@click.argument("topic", metavar="TOPIC", type=click.Choice((*_NAMES, _SCHEMA)))
@click.argument("kind", required=False, metavar="[KIND]", type=click.Choice(tuple(map(str, DocumentKind))))
@output_option()
def reference(topic: str, kind: str | None, output: Output) -> None:
    """List all settings, policy fields, plugins, classic names, endpoints, metrics, log fields or documents.

    \b
      extender reference settings          key in the file, environment variable, flag, default, meaning
      extender reference policy            every field of a --policy file, in both of its forms
      extender reference plugins           plugins, weights and arguments for KubeSchedulerConfiguration
      extender reference policy-names      predicates and priorities for the classic kind: Policy
      extender reference endpoints         HTTP paths of extender serve and extender schedule
      extender reference metrics -o json   metrics with their labels; every list has -o json, too
      extender reference log               fields of a log line
      extender reference documents         kinds of documents that -o json prints
      extender reference schema KIND       JSON Schema of a kind that -o json prints, such as Explanation
    """
    if (kind is not None) != (topic == _SCHEMA):
        raise ConfigurationError([f"{_SCHEMA} needs a KIND, and no other topic takes one"])
    if kind is not None:
        from extender.cli.schemas import schema

        click.echo(json.dumps(schema(kind), indent=2))
        return
    rows = TOPICS[topic]()
    if output.is_text:
        say_lines(aligned([[*rows[0]], *([*row.values()] for row in rows)]))
    else:
        show(headed(DocumentKind.REFERENCE, {"topic": topic, "rows": rows}), output)


def settings() -> Sequence[Row]:
    """Returns a row for each setting of `serve` and `schedule`, with its names in file, environment and flags."""
    from extender.config.settings import OPTIONS

    return [
        {
            "KEY": option.key,
            "VARIABLE": option.variable,
            "FLAG": option.flag,
            "COMMANDS": ", ".join(option.defaults),
            "DEFAULT": _defaults(option),
            "MEANING": option.description,
        }
        for option in OPTIONS.values()
    ]


def _defaults(option: Option) -> str:
    """Returns the default of the setting. If the commands have different defaults, names each."""
    by_command = {command: _default(default) for command, default in option.defaults.items()}
    if len(set(by_command.values())) == 1:
        return next(iter(by_command.values()))
    return ", ".join(f"{command}: {default}" for command, default in by_command.items())


def policy() -> Sequence[Row]:
    """Returns a row for each field of a KubeSchedulerConfiguration and of a classic Policy."""
    from extender.policy.classic import PolicySpec, PredicateArgument, PriorityArgument
    from extender.policy.configuration import ConfigurationSpec

    forms = (
        ("KubeSchedulerConfiguration", "", ConfigurationSpec),
        ("Policy", "", PolicySpec),
        ("Policy", "predicates[].argument.", PredicateArgument),
        ("Policy", "priorities[].argument.", PriorityArgument),
    )
    return [{"FORM": form, **row} for form, prefix, model in forms for row in _fields(model, prefix)]


def plugins() -> Sequence[Row]:
    """Returns a row for each built-in plugin, followed by a row for each of its arguments."""
    from extender.plugins.registry import REGISTRY

    rows: list[Row] = []
    for plugin in REGISTRY.values():
        kinds = [kind for kind, made in (("filter", plugin.predicate), ("score", plugin.priority)) if made]
        weight = str(plugin.weight) if plugin.priority else ""
        about = {"PLUGIN": plugin.name, "RULES": ", ".join(kinds) or "-", "WEIGHT": weight}
        rows.append({**about, "ARGUMENT": "", "DEFAULT": "", "MEANING": ""})
        rows += [{**about, "RULES": "", "WEIGHT": "", **argument} for argument in _arguments(plugin.arguments)]
    return rows


def policy_names() -> Sequence[Row]:
    """Returns a row for each name of a predicate or priority in a classic Policy."""
    from extender.policy import classic

    by_argument = {
        "predicate": ("any other name, with argument serviceAffinity or labelsPresence",),
        "priority": (
            "any other name, with argument serviceAntiAffinity, labelPreference or requestedToCapacityRatioArguments",
        ),
    }
    named = {"predicate": classic.PREDICATES, "priority": classic.priorities(1)}
    return [{"KIND": kind, "NAME": name} for kind in named for name in (*named[kind], *by_argument[kind])]


def metrics() -> Sequence[Row]:
    """Returns a row for each metric. Only `extender schedule` serves the metrics named scheduler_..."""
    from extender.web.series import SCHEDULER_SERIES, SERIES

    return [
        {"METRIC": series.name, "TYPE": series.kind, "LABELS": ", ".join(series.labels), "MEANING": series.help}
        for series in (*SERIES.values(), *SCHEDULER_SERIES.values())
    ]


def log_fields() -> Sequence[Row]:
    """Returns a row for each field that a log line may have."""
    from extender.web.log import FIELDS

    return [{"FIELD": name, "MEANING": meaning} for name, meaning in FIELDS.items()]


def documents() -> Sequence[Row]:
    """Returns a row for each kind of document that the commands print with -o json or -o yaml."""
    from extender.cli.schemas import SHAPES

    rows = []
    for kind, shape in SHAPES.items():
        command, _, meaning = (shape.__doc__ or "").partition("\n")[0].partition(": ")
        rows.append({"KIND": kind, "PRINTED BY": command.strip("`"), "MEANING": meaning})
    return rows


TOPICS: Mapping[str, Callable[[], Sequence[Row]]] = {
    "settings": settings,
    "policy": policy,
    "plugins": plugins,
    "policy-names": policy_names,
    "endpoints": endpoints,
    "metrics": metrics,
    "log": log_fields,
    "documents": documents,
}


def _fields(model: type[BaseModel], prefix: str) -> Iterator[Row]:
    """Yields a row for each field of `model` and of nested models, with the field's path in the file."""
    from extender.policy.configuration import PluginsSpec
    from extender.policy.faults import model_in

    if model is PluginsSpec:
        point = model_in(next(iter(model.model_fields.values())).annotation)
        assert point is not None  # each field of PluginsSpec is a model
        yield from _fields(point, f"{prefix}POINT.")
        return
    for name, field in model.model_fields.items():
        path, nested = f"{prefix}{field.alias or name}", model_in(field.annotation)
        has_default = not (field.is_required() or nested)
        default = _default(field.get_default(call_default_factory=True)) if has_default else "-"
        yield {"FIELD": path, "DEFAULT": default or "-", "MEANING": field.description or ""}
        if nested:
            yield from _fields(nested, f"{path}{'[]' if get_origin(_bare(field.annotation)) is tuple else ''}.")


def _bare(annotation: object) -> object:
    """Returns the tuple type for an optional tuple, and any other type unchanged."""
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
