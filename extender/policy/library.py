"""The plugins that a policy names: those of the registry, and users' rules wherever they are found."""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from types import CodeType, ModuleType

from pydantic import BaseModel

from extender.framework.plugin import Plugin, Registry
from extender.plugins.registry import IN_TREE
from extender.plugins.users import PredicateFunction, PriorityFunction, RaisedFailures, ReserveFunction, RuleFailures
from extender.plugins.users.failures import described, is_ctrl_c
from extender.policy.faults import Faults


class _SourceLoader(SourceFileLoader):
    """Compiles the source every time: bytecode is kept by second and size, and a file may change within both."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def search_last(folder: str) -> None:
    """Has modules found in the folder where they are found nowhere else: they take the place of no installed one."""
    if folder not in sys.path:
        sys.path.append(folder)
    sys.path_importer_cache[folder] = FileFinder(folder, (_SourceLoader, SOURCE_SUFFIXES))


@contextmanager
def imported_anew(folder: str) -> Iterator[None]:
    """Has the modules of the folder imported anew within; after an exception those before are there again."""
    before = _modules_of(folder)
    _drop(before)
    importlib.invalidate_caches()
    linecache.checkcache()  # or tracebacks would show the lines that were there
    try:
        yield
    except BaseException:
        _drop(_modules_of(folder))
        sys.modules.update(before)
        raise


def _modules_of(folder: str) -> dict[str, ModuleType]:
    """Returns the modules that were found in the folder, and those below them, by name."""
    modules = sys.modules.copy()
    found = {name for name, module in modules.items() if _is_found_in(folder, module)}
    return {name: module for name, module in modules.items() if name.partition(".")[0] in found}


def _is_found_in(folder: str, module: ModuleType) -> bool:
    loader = getattr(module, "__loader__", None)
    return isinstance(loader, _SourceLoader) and Path(loader.path).is_relative_to(folder)


def _drop(modules: dict[str, ModuleType]) -> None:
    for name in modules:
        sys.modules.pop(name, None)


ENTRY_POINT_GROUP = "extender.rules"
UserRule = PredicateFunction[..., object] | PriorityFunction[..., object] | ReserveFunction[..., object]


class Library:
    """Plugins by name.

    A name of the registry goes first, then one of `rules`, then an entry point of the group extender.rules; a name with
    a colon is a rule's place, `module:function`; its module may stand in `folder`, which is looked at last.
    """

    def __init__(
        self,
        registry: Registry = IN_TREE,
        rules: Mapping[str, UserRule] | None = None,
        failures: RuleFailures | None = None,
        folder: str = "",
    ) -> None:
        """`failures` is told when users' rules fail; without it their errors are raised. `folder`: the policy's own."""
        self.registry = registry
        self._rules = rules or {}
        self._failures = failures or RaisedFailures()
        self._folder = folder
        self._not_importable: set[str] = set()

    def find(self, name: str, path: str, faults: Faults) -> Plugin[BaseModel] | None:
        """Returns the plugin of this name; None where there is none, and that is noted with the path of the name."""
        return self.registry.get(name) or self.find_rule(name, path, faults, self.registry)

    def has_rule(self, name: str) -> bool:
        """Returns True if `name` looks like that of a user's rule."""
        return ":" in name or name in self._rules or any(point.name == name for point in _entry_points())

    def find_rule(self, name: str, path: str, faults: Faults, others: Iterable[str]) -> Plugin[BaseModel] | None:
        """Returns the user's rule of this name, as `find`; `others` are names that may have been meant too."""
        module = name.partition(":")[0]
        if module in self._not_importable:  # which is noted already, for the first of its rules
            return None
        try:
            found = self._rules.get(name) or (self._imported(name) if ":" in name else _entry_point(name))
        except BaseException as error:  # importing a user's module runs it, and it may raise anything
            if is_ctrl_c(error):
                raise
            faults.add(path, f"{name} cannot be imported: {described(error)}")
            if module not in sys.modules:
                self._not_importable.add(module)
            return None
        if not name:
            faults.require(path)
            return None
        if found is None:
            right = (*others, *self._rules, *(point.name for point in _entry_points()))
            faults.add(path, f"there is no {name!r}", name, right)
            return None
        if not isinstance(found, PredicateFunction | PriorityFunction | ReserveFunction):
            decorators = "@predicate, @priority, @reserve or @permit"
            faults.add(path, f"{name} is no rule; decorate the function with {decorators}")
            return None
        return self._as_plugin(name, found)

    def _imported(self, place: str) -> object:
        if self._folder:
            search_last(self._folder)
        name, _, attribute = place.partition(":")
        found: object = importlib.import_module(name)
        for part in attribute.split("."):
            if not hasattr(found, part):
                self._refuse_hidden(name)
            found = getattr(found, part)
        return found

    def _refuse_hidden(self, name: str) -> None:
        """Raises ImportError where the folder has a module of this name, and an installed one went before it."""
        own = Path(self._folder, *name.split("."))
        there = own.with_suffix(".py").exists() or (own / "__init__.py").exists()
        if self._folder and there and not _is_found_in(self._folder, sys.modules[name]):
            raise ImportError(f"an installed {name} goes before the one beside the policy: give that another name")

    def _as_plugin(self, name: str, rule: UserRule) -> Plugin[BaseModel]:
        failures = self._failures
        if isinstance(rule, PredicateFunction):
            return Plugin(
                name, rule.arguments, predicate=lambda given: rule.rule(name, dict(given), failures), default=False
            )
        if isinstance(rule, PriorityFunction):
            return Plugin(
                name, rule.arguments, priority=lambda given: rule.rule(name, dict(given), failures), default=False
            )
        return Plugin(
            name, rule.arguments, reserve=lambda given: rule.rule(name, dict(given), failures),
            points=frozenset((rule.point,)), default=False,
        )  # fmt: skip


def _entry_point(name: str) -> object:
    return next((point.load() for point in _entry_points() if point.name == name), None)


def _entry_points() -> EntryPoints:
    return entry_points(group=ENTRY_POINT_GROUP)
