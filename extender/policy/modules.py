"""The modules of users' rules that stand beside a policy, imported from their source as it is now."""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType


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
