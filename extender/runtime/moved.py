"""Modules that have moved: their old names can still be imported, for one version, with a DeprecationWarning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class MovedModules(MetaPathFinder):
    """Finds modules by their old names; `new_names`: of modules and packages, by old name."""

    def __init__(self, new_names: Mapping[str, str]) -> None:
        self._new_names = new_names

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parts = fullname.split(".")
        for length in range(len(parts), 1, -1):
            new_name = self._new_names.get(".".join(parts[:length]))
            if new_name is not None:
                return ModuleSpec(fullname, _Alias(".".join((new_name, *parts[length:]))))
        return None


class _Alias(Loader):
    """Loads a module by importing it under its new name."""

    def __init__(self, new_name: str) -> None:
        self._new_name = new_name
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(
            f"{spec.name} is {self._new_name} now; what rules may use can be imported from extender itself",
            DeprecationWarning,
            stacklevel=2,
        )
        module = import_module(self._new_name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has just put the old name's there
