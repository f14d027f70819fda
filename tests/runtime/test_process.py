"""The memory and the garbage collector of a process, and the version and commit that it shows."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from extender.runtime import process
from extender.runtime.process import product_commit

_LIMIT = "from extender.runtime import process as malloc; assert malloc.limit()"
# Bodies of 25 MiB, and between them something small that stays, as a cache's objects do.
_CHURN = """
kept = []
for _ in range(8):
    bodies = [bytes(25 * 2**20) for _ in range(3)]
    kept += [bytes(2**19), bodies.pop()[:2**19]]
    del bodies
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS")) // 1024)
"""


def printed(*steps: str) -> int:
    done = subprocess.run([sys.executable, "-c", "\n".join(steps)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such limits")
def test_large_blocks_do_not_stay_resident() -> None:
    assert printed(_LIMIT, _CHURN) < printed("from extender.runtime import process as malloc", _CHURN) - 16


# Small blocks that stay, as what is kept of requests does, each between large ones that are freed again.
_HOLES = """
kept = [bytes(20_000 if number % 2 else 2_000) for number in range(4_000)]
kept[1::2] = [None] * 2_000
{then}
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS")) // 1024)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such heap")
def test_free_pages_between_small_blocks_are_returned() -> None:
    kept, given_back = (printed(_LIMIT, _HOLES.format(then=then)) for then in ("", "malloc.give_back()"))
    assert given_back < kept - 16


def test_the_limits_grow_with_the_number_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[int, int] = {}
    c_library = SimpleNamespace(mallopt=options.setdefault)
    monkeypatch.setattr(process, "_CLIBRARY", c_library)
    assert process.limit(100_000)
    arenas, mapped_from, trimmed_from = -8, -3, -1  # malloc.h: M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
    assert options == {arenas: 1, mapped_from: 16_000_000, trimmed_from: 64_000_000}


def test_a_c_library_without_these_limits_leaves_the_memory_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_CLIBRARY", SimpleNamespace())
    assert not process.limit()
    process.give_back()
    process.use_huge_pages()


def test_the_heap_keeps_four_mebibytes_free(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    c_library = SimpleNamespace(malloc_trim=lambda size: kept.append(size.value))
    monkeypatch.setattr(process, "_CLIBRARY", c_library)
    process.give_back()
    assert kept == [4 * 2**20]


# Arrays of 2 MiB, one after another, as a decision over 50,000 nodes makes them; how many pages the kernel cleared.
_ARRAYS = """
import resource
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    bytes(2**21).replace(b"x", b"y")
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such limits")
def test_arrays_of_large_clusters_reuse_pages() -> None:
    limited = "from extender.runtime import process; assert process.limit({nodes})"
    pages = {nodes: printed(limited.format(nodes=nodes), _ARRAYS) for nodes in (0, 50_000)}
    assert pages[50_000] < pages[0] / 10


# Small objects of 100 MiB, and how many kB of them stand in huge pages; -1 where the kernel makes none.
_OBJECTS = """
import ctypes, mmap, re
probe = mmap.mmap(-1, 2**23, flags=mmap.MAP_PRIVATE)
probe.write(bytes(2**23))
address = ctypes.addressof(ctypes.c_char.from_buffer(probe))
made = ctypes.CDLL(None).madvise(ctypes.c_void_p(-(-address // 2**21) * 2**21), ctypes.c_size_t(2**21), 25)
kept = [{} for _ in range(1_500_000)]
def huge():
    return int(re.search(r"AnonHugePages: +(\\d+)", open("/proc/self/smaps_rollup").read())[1])
before = huge()
process.use_huge_pages()
print(-1 if made else huge() - before)
"""


@pytest.mark.skipif(platform.system() != "Linux", reason="other kernels have no such pages")
def test_memory_in_use_moves_to_huge_pages() -> None:
    moved = printed("from extender.runtime import process", _OBJECTS)
    if moved < 0:
        pytest.skip("this kernel makes no huge pages when it is asked to")
    assert moved > 32 * 1024


# New versions take the place of old ones, as in a cache: how many objects the next collection has to visit.
_VERSIONS = """
import gc
from extender.runtime import process
gc.set_threshold(*process.GC_THRESHOLDS)
versions = [[[number]] for number in range(100_000)]
gc.freeze()
for number in range(100_000):
    versions[number] = [[number]]
{then}
print(len(gc.get_objects(generation=0)) + len(gc.get_objects(generation=1)))
"""


def test_replaced_versions_do_not_accumulate_among_young_objects() -> None:
    left, collected = (printed(_VERSIONS.format(then=then)) for then in ("", "process.collect_young()"))
    assert collected < 1_000 < 100_000 < left


def test_the_longest_collection_is_forgotten_after_ten_minutes() -> None:
    now = 0.0
    pauses = process.CollectionPauses(lambda: now)
    assert pauses.longest_seconds == 0.0
    for at, seconds in ((10.0, 2.0), (20.0, 1.0), (400.0, 0.5)):
        now = at
        pauses._note("start", None)
        now = at + seconds
        pauses._note("stop", None)
    assert pauses.longest_seconds == 2.0
    now = 650.0
    assert pauses.longest_seconds == 0.5
    now = 1500.0
    assert pauses.longest_seconds == 0.0


def test_the_longest_collection_is_recorded() -> None:
    pauses = process.CollectionPauses()
    pauses.start()
    pauses.start()
    try:
        gc.collect()
        assert pauses.longest_seconds > 0
        assert len([callback for callback in gc.callbacks if callback == pauses._note]) == 1
    finally:
        gc.callbacks.remove(pauses._note)


@pytest.mark.parametrize(
    ("written", "commit"),
    [
        pytest.param("g1a2b3c4d5", "1a2b3c4d5", id="a build from a checkout"),
        pytest.param("None", "unknown", id="a build from an archive"),
        pytest.param(None, "unknown", id="not built"),
    ],
)
def test_the_commit_is_the_one_that_was_built(
    written: str | None, commit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runtime").mkdir()
    if written:
        (tmp_path / "runtime/commit.txt").write_text(written)
    monkeypatch.setattr(process, "files", lambda package: tmp_path)
    assert product_commit() == commit
