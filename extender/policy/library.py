"""Finds the plugins that a policy names: the plugins of the registry, and users' rules."""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from types import CodeType, ModuleType

from pydantic import BaseModel

from extender.framework.plugin import Plugin, Registry
from extender.plugins.registry import IN_TREE, REGISTRY
from extender.plugins.users.function import DECORATORS, RuleFunction
from extender.plugins.users.handle import RuleHost
from extender.plugins.users.predicate import PredicateFunction
from extender.plugins.users.priority import DEVICE_POLICY, DevicePriorityFunction, PriorityFunction
from extender.plugins.users.rule_calls import OfflineHost, described, is_ctrl_c
from extender.policy.faults import Faults


class SourceLoader(SourceFileLoader):
    """Compiles the source on each import, and ignores cached bytecode.

    Python uses cached bytecode if the size of the source and its modification time in whole seconds are the same. After
    a small edit within a second, both may be the same although the source is not.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def search_last(folder: str) -> None:
    """Adds the folder to the end of the import path, so that its modules do not hide installed ones."""
    if folder not in sys.path:
        sys.path.append(folder)
    sys.path_importer_cache[folder] = FileFinder(folder, (SourceLoader, SOURCE_SUFFIXES))


@contextmanager
def fresh_imports(folder: str) -> Iterator[None]:
    """Imports the folder's modules again within the block; restores the previous modules if the block raises."""
    before = _modules_of(folder)
    _drop(before)
    importlib.invalidate_caches()
    linecache.checkcache()  # tracebacks then show the new lines of the file
    try:
        yield
    except BaseException:
        _drop(_modules_of(folder))
        sys.modules.update(before)
        raise


def _modules_of(folder: str) -> dict[str, ModuleType]:
    """Returns the loaded modules that come from the folder, and their submodules, by name."""
    modules = sys.modules.copy()
    own = {name for name, module in modules.items() if _is_from(folder, module)}
    return {name: module for name, module in modules.items() if name.partition(".")[0] in own}


def _is_from(folder: str, module: ModuleType) -> bool:
    loader = getattr(module, "__loader__", None)
    return isinstance(loader, SourceLoader) and Path(loader.path).is_relative_to(folder)


def _drop(modules: dict[str, ModuleType]) -> None:
    for name in modules:
        sys.modules.pop(name, None)


ENTRY_POINT_GROUP = "extender.rules"


class Library:
    """Finds plugins by name.

    The registry is searched first, then `rules`, then the entry points of the group extender.rules. A name with a
    colon, `module:function`, says where to import a rule from; the module may be in `folder`, which is searched last.
    """

    def __init__(
        self,
        registry: Registry = REGISTRY,
        rules: Mapping[str, RuleFunction[..., object]] | None = None,
        host: RuleHost | None = None,
        folder: str = "",
        *,
        imports: bool = True,
    ) -> None:
        """Sets where the plugins and rules that a policy names are searched.

        Args:
            host: the process that runs users' rules; without it, their errors are raised.
            folder: the policy's folder.
            imports: True if the policy may name modules. They are imported, which runs their code. Installed entry
                points may always be named.
        """
        self.registry = registry
        self._rules = rules or {}
        self._host = host or OfflineHost()
        self._folder = folder
        self._imports = imports
        self.imported: dict[str, RuleFunction[..., object]] = {}
        self._not_importable: set[str] = set()

    def find(self, name: str, path: str, faults: Faults) -> Plugin[BaseModel] | None:
        """Returns the plugin of this name; adds a fault at `path` and returns None if it is unknown."""
        return self.registry.get(name) or self.find_rule(name, path, faults, self.registry)

    def has_rule(self, name: str) -> bool:
        """Returns True if `name` may be the name of a user's rule."""
        return ":" in name or name in self._rules or any(point.name == name for point in _entry_points())

    def find_rule(self, name: str, path: str, faults: Faults, others: Iterable[str]) -> Plugin[BaseModel] | None:
        """Returns the user's rule of this name, or else adds a fault that may suggest one of the names in `others`."""
        module = name.partition(":")[0]
        if ":" in name and name not in self._rules and not self._imports:
            faults.add(
                path,
                f"{name}: a rule is imported only if --policy names the policy. Save the policy as a file",
            )
            return None
        if module in self._not_importable:  # the module's first rule has already reported this
            return None
        try:
            rule = self._rules.get(name) or (self._imported(name) if ":" in name else _entry_point(name))
        except BaseException as error:  # importing a module runs the user's code, which may raise any exception
            if is_ctrl_c(error):
                raise
            faults.add(path, f"{name} cannot be imported: {described(error)}")
            if module not in sys.modules:
                self._not_importable.add(module)
            return None
        if not name:
            faults.require(path)
            return None
        if rule is None:
            right = (*others, *self._rules, *(point.name for point in _entry_points()))
            faults.add(path, f"unknown plugin {name!r}", name, right)
            return None
        if not isinstance(rule, RuleFunction):
            faults.add(path, f"{name} is not a rule; decorate the function with {DECORATORS}")
            return None
        self.imported[name] = rule
        return self._as_plugin(name, rule)

    def find_device_policy(self, name: str, path: str, faults: Faults, ours: Sequence[str]) -> Plugin[BaseModel] | None:
        """Returns the user's device policy of this name, or else adds a fault.

        If no rule has the name, the fault lists all known policies: `ours` and the users'.
        """
        if not self.has_rule(name):
            known = [*ours, *self._device_policies()]
            faults.add(path, f"expected {', '.join(known)}, or module:function of your own; got {name!r}", name, known)
            return None
        plugin = self.find_rule(name, path, faults, ours)
        if plugin is not None and DEVICE_POLICY not in plugin.others:
            faults.add(path, f"{name} is not a device policy; decorate the function with @device_priority")
            return None
        return plugin

    def _device_policies(self) -> list[str]:
        """Returns the names of users' device policies that are loaded or installed."""
        found: dict[str, object] = {**self._rules, **self.imported}
        for point in _entry_points():
            with suppress(Exception):  # loading runs the user's code, which may raise any exception
                found[point.name] = point.load()
        return sorted(name for name, rule in found.items() if isinstance(rule, DevicePriorityFunction))

    def _imported(self, place: str) -> object:
        if self._folder:
            search_last(self._folder)
        name, _, attribute = place.partition(":")
        value: object = importlib.import_module(name)
        for part in attribute.split("."):
            if not hasattr(value, part):
                self._refuse_hidden(name)
            value = getattr(value, part)
        return value

    def _refuse_hidden(self, name: str) -> None:
        """Raises ImportError if an installed module hides the folder's module of this name."""
        own = Path(self._folder, *name.split("."))
        exists = own.with_suffix(".py").exists() or (own / "__init__.py").exists()
        if self._folder and exists and not _is_from(self._folder, sys.modules[name]):
            raise ImportError(
                f"an installed module {name} hides the module beside the policy; rename the module beside the policy"
            )

    def _as_plugin(self, name: str, rule: RuleFunction[..., object]) -> Plugin[BaseModel]:
        host = self._host
        if isinstance(rule, PredicateFunction):
            return Plugin(
                name, rule.arguments, predicate=lambda given: rule.rule(name, dict(given), host), default=False
            )
        if isinstance(rule, PriorityFunction):
            return Plugin(
                name, rule.arguments, priority=lambda given: rule.rule(name, dict(given), host), default=False
            )
        build = {rule.point: lambda given: rule.rule(name, dict(given), host)}
        return Plugin(name, rule.arguments, others=build, default=False)


class OnlyInTree(Library):
    """Finds the plugins that kube-scheduler itself has, and no users' rules."""

    def __init__(self) -> None:
        super().__init__(IN_TREE)

    def has_rule(self, name: str) -> bool:  # noqa: ARG002  the base class has the parameter
        return False

    def find_rule(self, name: str, path: str, faults: Faults, others: Iterable[str]) -> None:
        faults.add(path, f"unknown plugin {name!r}", name, others)


def _entry_point(name: str) -> object:
    return next((point.load() for point in _entry_points() if point.name == name), None)


def _entry_points() -> EntryPoints:
    return entry_points(group=ENTRY_POINT_GROUP)
