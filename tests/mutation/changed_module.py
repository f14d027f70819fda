"""Imports one module from a changed source; its file stays as it is."""

from __future__ import annotations

from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType


class ChangedModule(MetaPathFinder):
    """Finds the changed module, if it is first in `sys.meta_path`; all others are found as usual."""

    def __init__(self, root: Path, module: str, source: str) -> None:
        self._path = str(root / module)
        self._name = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self._source = source

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        return spec_from_file_location(name, self._path, loader=_Loader(name, self._path, self._source))


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)
