"""Imports go one way, between rooms and inside them, and only the borders import what is foreign."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.test_errors import declared

PACKAGE = Path(__file__).parents[1] / "extender"

# Each layer may import those below it. Siblings on one line do not import each other.
LAYERS = [
    {"wsgi"},
    {"cli"},
    {"app"},
    {"ui"},
    {"web", "offline"},
    {"recording"},
    {"verbs", "scheduler"},
    {"extender_v1", "cluster", "snapshots"},
    {"cache", "queue", "policy", "config"},
    {"engine"},
    {"groups"},
    {"preemption", "plugins"},
    {"devices", "volumes"},
    {"framework"},
    {"table"},
    {"model"},
    {"runtime"},
    {"errors"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ONLY_IN = {
    "kubernetes": {"cluster"},
    "flask": {"web"},
    "jinja2": {"offline"},
    "werkzeug": {"web"},
    "gunicorn": {"web"},
    "click": {"cli"},
    "mcp": {"cli"},
}
PURE = {
    "engine",
    "framework",
    "plugins",
    "devices",
    "volumes",
    "preemption",
    "groups",
    "policy",
    "table",
    "model",
    "cache",
    "queue",
}
IMPURE_MODULES = {"time", "random", "logging", "os", "socket", "subprocess", "requests"}
ONLY_APP_IMPORTS = "cluster"
LIVE = "extender.offline.live"  # reads a live cluster once, for the commands and the library
# A class has the name of its kind; these are in model.controllers again, with more fields.
WITH_TEMPLATES = {"Pod", "ReplicaSet", "ReplicationController", "StatefulSet"}
LOOSE = {"__init__", "errors", "ui", "wsgi"}

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" or path.parent != PACKAGE)
ROOMS = sorted({PACKAGE, *(path.parent for path in MODULES)})


def room(module: str) -> str:
    """`extender.framework.rules` -> `framework`."""
    return module.split(".")[1] if "." in module else ""


def name_of(path: Path) -> str:
    return ".".join(("extender", *path.relative_to(PACKAGE).parts)).removesuffix(".py").removesuffix(".__init__")


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Returns the imports and classes of a module, wherever they are in it."""
    walked = ast.walk(ast.parse(path.read_text()))
    found = [node for node in walked if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef)]
    for node in found:
        if isinstance(node, ast.ClassDef):
            node.body = []  # it would be kept, and the garbage collector would look at it again and again
    return tuple(found)


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Every module that is imported, whether as `import a.b`, `from a.b import c` or `from a import b`."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            yield module
            if module.split(".")[0] == "extender":
                yield from (f"{module}.{alias.name}" for alias in node.names)


def test_imports_go_down() -> None:
    for path, imported in all_imports():
        here, there = room(name_of(path)), room(imported) if imported.startswith("extender.") else ""
        if not there or there == here:
            continue
        assert here in LEVEL, f"{here} is in no layer"
        assert LEVEL[there] > LEVEL[here], f"{name_of(path)} imports {imported}"
        talks = here == "app" or name_of(path) == LIVE
        assert there != ONLY_APP_IMPORTS or talks, f"only app and {LIVE} import {there}, not {name_of(path)}"


def all_imports() -> Iterator[tuple[Path, str]]:
    """Yields each module with each of its imports."""
    return ((path, imported) for path in MODULES for imported in imports(path))


def _units_of(folder: Path) -> Mapping[str, set[str]]:
    """Returns what each file and each folder directly in `folder` imports of the others there."""
    prefix = name_of(folder / "__init__.py") + "."
    units: defaultdict[str, set[str]] = defaultdict(set)
    names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    for path in folder.rglob("*.py"):
        here = path.relative_to(folder).with_suffix("").parts[0]
        if here == "__init__":
            continue
        for imported in imports(path):
            there = imported.removeprefix(prefix).split(".")[0]
            if imported.startswith(prefix) and there in names and there != here:
                units[here].add(there)
    return units


@pytest.mark.parametrize("folder", ROOMS, ids=name_of)
def test_no_cycle_inside_a_room(folder: Path) -> None:
    try:
        TopologicalSorter(_units_of(folder)).prepare()
    except CycleError as cycle:
        pytest.fail(" -> ".join(reversed(cycle.args[1])))


@pytest.mark.parametrize("folder", [each for each in ROOMS if each != PACKAGE], ids=name_of)
def test_a_room_says_what_it_is_for(folder: Path) -> None:
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))


def test_nothing_loose_stands_at_the_top() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} <= LOOSE


def test_only_the_borders_import_what_is_foreign() -> None:
    for path, imported in all_imports():
        here, top = room(name_of(path)), imported.split(".")[0]
        assert here in ONLY_IN.get(top, {here}), f"{name_of(path)} imports {imported}"
        assert here not in PURE or top not in IMPURE_MODULES, f"{name_of(path)} imports {imported}"


def test_every_room_is_in_a_layer() -> None:
    rooms = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if not path.name.startswith("_")}
    assert rooms - {"py"} <= LEVEL.keys() | {"py"}, rooms - LEVEL.keys()


def test_no_two_public_classes_have_one_name() -> None:
    named = Counter(node.name for path in MODULES for node in nodes_of(path) if isinstance(node, ast.ClassDef))
    assert {name for name, count in named.items() if count > 1 and not name.startswith("_")} == WITH_TEMPLATES


# What the answers about a cluster in memory, and the pages, may import from below: the door to a decision, values and
# names. They decide nothing themselves.
DOOR = {
    "extender.groups",
    "extender.table.labels.Rows",
    "extender.engine",
    "extender.errors",
    "extender.framework.node_selectors.required_node_selector",
    "extender.framework.profile",
    "extender.framework.topology.HOSTNAME",
    "extender.framework.topology.ZONE",
    "extender.model",
    "extender.plugins.registry.default_profile",
    "extender.policy",
    "extender.preemption.candidates.Candidate",
    "extender.preemption.evaluator.Preemption",
    "extender.runtime",
    "extender.snapshots",
    "extender.table.PodInfo",
    "extender.table.Table",
    "extender.table.object_index.Objects",
    "extender.table.podinfo.twin",
}
BESIDE_THE_DOOR = {
    "extender.offline.experiment": {
        "extender.devices.device_nodes",
        "extender.devices.policies",
        "extender.devices.typical_pods",
        "extender.framework.policy_fields",
        "extender.plugins.device_scoring",
        "extender.plugins.users",
    },
    "extender.offline.groups": {"extender.queue.entries.GroupOutcome"},
    "extender.offline.recording": {  # replays what the verbs and the loop decided, so it runs them
        "extender.cache",
        "extender.extender_v1",
        "extender.framework",
        "extender.plugins",
        "extender.recording",
        "extender.table",
        "extender.verbs",
    },
    LIVE: {"extender.cluster", "extender.config.cluster_access"},
    "extender.offline.cluster": {"extender.config.cluster_access"},
    "extender.offline.remarks": {
        "extender.plugins.users.predicate.CustomPredicate"
    },  # distinguishes rules from plugins
    "extender.offline.rule_trial": {  # calls one rule alone
        "extender.framework.annotations",
        "extender.framework.permit",
        "extender.framework.plugin",
        "extender.framework.rules",
        "extender.plugins.device_scoring.scoring_with",
        "extender.plugins.users",
    },
    "extender.offline.claims": {  # does what the controllers do after the loop has chosen
        "extender.devices.plan.pending_claim",
        "extender.devices.pod_claims",
        "extender.framework.cluster_events",
        "extender.plugins.volume_binding.bound",
        "extender.volumes.node_volumes.node_term",
        "extender.volumes.accessibility",  # binds claims as the volume controller does
    },
    "extender.offline.nodes": {"extender.devices"},  # names the devices that pods get
    "extender.offline.explain.claim_changes": {"extender.devices.plan"},  # names what evictions free
    "extender.offline.manifests.structure": {"extender.devices.cel.device_selectors"},  # compiles selectors
    "extender.offline.plan.model": {  # turns filters into constraints of a solver
        "extender.devices.pod_claims",
        "extender.plugins",
        "extender.table.podinfo.HostPort",
        "extender.table.podinfo.of_one_template",
    },
    "extender.offline.what_if.simulation": {  # runs the loop's own queue
        "extender.framework.cluster_events",
        "extender.plugins.registry.INTERESTS",
        "extender.plugins.registry.users_rules",
        "extender.queue",
        "extender.scheduler.event_router.free_on",
        "extender.table.podinfo.Group",
        "extender.table.podinfo.of_one_template",
    },
}


def _is_within(name: str, allowed: set[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in allowed)


def test_answers_ask_the_engine_at_its_door() -> None:
    asking = [path for path in MODULES if room(name_of(path)) in ("offline", "ui")]
    assert {name_of(path): beyond for path in asking if (beyond := beyond_the_door(path))} == {}


def beyond_the_door(path: Path) -> set[str]:
    name = name_of(path)
    allowed = DOOR | {each for place, more in BESIDE_THE_DOOR.items() if _is_within(name, {place}) for each in more}
    imported = {each for each in imports(path) if each.startswith("extender.")}
    # `from a import b` gives a and a.b; a alone says nothing.
    named = {each for each in imported if not any(other.startswith(f"{each}.") for other in imported)}
    return {each for each in named if room(each) not in ("offline", "ui", "web") and not _is_within(each, allowed)}


# Whoever takes over the webhook and the loop need not read the answers: only the commands and the pages ask for them.
ASK_FOR_ANSWERS = {"extender.app.live_pages", "extender.cli", "extender.ui"}


def test_the_core_is_read_without_the_answers() -> None:
    others = [path for path in MODULES if room(name_of(path)) != "offline"]
    importing = {
        name_of(path) for path in others if any(_is_within(each, {"extender.offline"}) for each in imports(path))
    }
    assert {name for name in importing if not _is_within(name, ASK_FOR_ANSWERS)} == set()
    assert {name for name in ASK_FOR_ANSWERS if not any(_is_within(each, {name}) for each in importing)} == set()


# A pod is decided in `engine.decide`. The verbs answer a part of kube-scheduler's own decision, and the group algorithm
# also checks members on the nodes that they have.
DECIDES = {
    "extender.framework.find_fit.find_fit",
    "extender.framework.find_fit.score",
    "extender.preemption.evaluator.preempt",
}
MAY_DECIDE = {
    "extender.engine.decide",
    "extender.groups.group_preemption",
    "extender.verbs",
}


def test_a_pod_is_decided_in_one_place() -> None:
    importing = {name_of(path) for path in MODULES if DECIDES.intersection(imports(path))}
    assert {name for name in importing if not _is_within(name, MAY_DECIDE)} == set()
    assert {name for name in MAY_DECIDE if not any(_is_within(each, {name}) for each in importing)} == set()


def test_exceptions_that_errors_does_not_declare_stay_in_their_rooms() -> None:
    elsewhere: dict[str, str] = {}
    imported: list[tuple[str, list[str]]] = []
    for path in MODULES:
        here = name_of(path)
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom):
                imported.append((here, [alias.name for alias in node.names]))
            elif isinstance(node, ast.ClassDef) and room(here) != "errors" and any(map(_is_exception, node.bases)):
                elsewhere[node.name] = room(here)
    away = [(here, name) for here, names in imported for name in names if elsewhere.get(name, room(here)) != room(here)]
    assert away == []


def _is_exception(base: ast.expr) -> bool:
    name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
    return name in declared() or name.endswith(("Error", "Exception"))
