"""Makes all runs of an experiment in several processes, and keeps each, so that an interrupted sweep goes on."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec

from extender.errors import ExtenderError
from extender.offline.experiment.results import ExperimentResult, summed_up
from extender.offline.experiment.run import ExperimentSample, run
from extender.offline.experiment.specification import Experiment

_DASK_SECONDS = 10
_Run = list[ExperimentSample]
_DECODER = msgspec.json.Decoder(_Run)


def experiment(
    path: str | Path,
    results: str | Path | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
    dask: str | None = None,
) -> ExperimentResult:
    """Makes the runs of an experiment, and returns what was measured.

    The result does not depend on the number of workers, nor on where they run.

    Args:
        path: the experiment's file.
        results: the folder in which each run is kept when it is done; kept runs are not made again, as long as all
            that they depend on is the same. By default none is kept.
        workers: the number of processes.
        progress: called with the number of runs that are done, and of all runs.
        dask: the address of a Dask scheduler, whose workers then make the runs; they read the files at the same path.

    Raises:
        ConfigurationError, MalformedInput: the experiment or its trace is wrong.
        ExtenderError: a process was ended, Dask is missing or cannot be reached, or no pod arrived.
    """
    loaded = Experiment.load(Path(path))
    loaded.trace  # noqa: B018  # a fault of the trace is found before any process starts
    pairs = list(product(loaded.spec.policies, loaded.seeds))
    folder = Path(results) / "runs" if results is not None else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    done = {pair: kept for pair in pairs if folder and (kept := _kept(folder / loaded.key(*pair)))}
    waiting = [pair for pair in pairs if pair not in done]
    report = progress or (lambda _done, _total: None)
    report(len(done), len(pairs))

    def take(pair: tuple[str, int], made: _Run) -> None:
        if not made:
            raise ExtenderError(f"{path}: no pod arrives")
        done[pair] = made
        if folder is not None:
            _keep(folder / loaded.key(*pair), made)
        report(len(done), len(pairs))

    if dask is not None:
        _make_on_dask(dask, loaded.path.resolve(), waiting, take)
    elif workers == 1 or len(waiting) < 2:
        for pair in waiting:
            take(pair, _make_one(loaded, *pair))
    else:
        _make(loaded.path, waiting, min(workers, len(waiting)), take)
    return summed_up([done[pair] for pair in pairs], loaded.spec.moves)


def _make(
    path: Path, pairs: list[tuple[str, int]], workers: int, take: Callable[[tuple[str, int], _Run], None]
) -> None:
    # Ctrl-C reaches every process of the terminal, and should end those of the pool at once and without a traceback.
    by_default = signal.SIGINT, signal.SIG_DFL
    with ProcessPoolExecutor(workers, get_context("spawn"), signal.signal, by_default) as pool:
        try:
            futures = {pool.submit(_run_in_process, path, *pair): pair for pair in pairs}
            for future in as_completed(futures):
                take(futures[future], _DECODER.decode(future.result()))
        except BrokenProcessPool:
            what = "a process was ended from outside; run the command again, which makes only the runs that are missing"
            raise ExtenderError(what) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _make_on_dask(
    address: str, path: Path, pairs: list[tuple[str, int]], take: Callable[[tuple[str, int], _Run], None]
) -> None:
    """Makes the runs on the workers of a Dask scheduler, which gives the runs of a lost worker to another."""
    with _dask(address) as (client, as_done):
        futures = {client.submit(_run_in_process, path, *pair, pure=False): pair for pair in pairs}
        for future in as_done(futures):
            take(futures[future], _DECODER.decode(future.result()))


@contextmanager
def _dask(address: str) -> Iterator[tuple[Any, Any]]:
    """Yields a client of the Dask scheduler, and Dask's own `as_completed`."""
    try:
        from distributed import Client, KilledWorker
        from distributed import as_completed as as_done
    except ImportError:
        raise ExtenderError("--dask needs Dask: pip install 'podseat[dask]'") from None
    try:
        client = Client(address, timeout=_DASK_SECONDS)
    except (OSError, ValueError) as error:
        raise ExtenderError(f"no Dask scheduler answers at {address}: {error}") from None
    with client:
        try:
            yield client, as_done
        except KilledWorker as error:
            raise ExtenderError(
                f"several workers were lost, one after another, while they made a run: {error}"
            ) from None


@lru_cache(maxsize=1)
def _loaded(path: Path) -> Experiment:
    return Experiment.load(path)


def _make_one(loaded: Experiment, policy: str, seed: int) -> _Run:
    made = run(loaded, policy, seed)
    gc.collect()  # Else the objects of an engine, which refer to each other, would stay for many runs.
    return made


def _run_in_process(path: Path, policy: str, seed: int) -> bytes:
    return msgspec.json.encode(_make_one(_loaded(path), policy, seed))


def _kept(file: Path) -> _Run | None:
    try:
        return _DECODER.decode(file.with_suffix(".json").read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _keep(file: Path, made: _Run) -> None:
    """Writes the run in one step, so that an interrupted write leaves no half of it."""
    partial = file.with_suffix(".partial")
    partial.write_bytes(msgspec.json.encode(made))
    partial.replace(file.with_suffix(".json"))
