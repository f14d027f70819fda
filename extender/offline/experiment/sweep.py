"""Makes all runs of an experiment, and sums up what they measured.

The runs are made in several processes, and each is kept, so that an interrupted sweep goes on.
"""

from __future__ import annotations

import csv
import gc
import io
import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from functools import lru_cache, partial
from html import escape
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from extender.errors import ExtenderError
from extender.offline.answers import Documented, frame
from extender.offline.experiment.run import ExperimentSample, run
from extender.offline.experiment.specification import Experiment
from extender.runtime.text import aligned, counted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_PAPERS_PERCENT = 80
_POINTS = 200
_PLOTS: Mapping[str, Sequence[tuple[str, str]]] = {
    "allocated": (("allocated", "devices in use, % of all"),),
    "fragmentation": (
        ("fragmentation_ratio", "unusable, % of the free devices"),
        ("fragmentation", "unusable, % of all devices"),
    ),
    "pending": (("pending", "pods without a node"),),
    "evictions": (("evictions", "pods evicted so far"),),
    "energy": (("kilowatts", "kW"),),
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body{{font:15px system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}}svg{{width:100%;height:auto}}
table{{border-collapse:collapse}}td,th{{padding:.2rem .8rem;text-align:right}}td:first-child{{text-align:left}}</style>
</head><body><h1>{title}</h1>
{table}
{plots}
</body></html>
"""
_DASK_SECONDS = 10
_Run = list[ExperimentSample]
_DECODER = msgspec.json.Decoder(_Run)


class PolicySummary(Documented, frozen=True):
    """A policy at the end of its runs.

    Attributes:
        policy: the policy, as the experiment names it.
        runs: the number of its runs, one for each seed.
        allocated: the devices in use at the end, in percent of all; the mean over the runs.
        allocated_deviation: the standard deviation of `allocated` over the runs.
        fragmentation_ratio: when 80 percent of all devices have been asked for: the free devices that typical pods
            cannot use, in percent of the free devices; the mean over the runs. None if a run does not get so far.
        pending: the pods without a node at the end; the mean over the runs.
        evictions: the pods evicted for others of a higher priority; the mean over the runs.
        kilowatts: what the nodes draw at the end; the mean over the runs.
        after_moves: the number of moves -> the devices in use, in percent of all, after at most so many; the mean over
            the runs. The other attributes are about the time before the first move.
    """

    policy: str
    runs: int
    allocated: float
    allocated_deviation: float
    fragmentation_ratio: float | None
    pending: float
    evictions: float
    kilowatts: float
    after_moves: Mapping[str, float]


class ExperimentResult(Documented, frozen=True):
    """The answer of an experiment.

    Attributes:
        policies: a summary for each policy, in the order of the experiment.
        samples: everything that was measured, by policy, seed and time.
    """

    policies: list[PolicySummary]
    samples: list[ExperimentSample]

    def to_frame(self) -> pd.DataFrame:
        """Returns a DataFrame with a row for each measurement. Raises ExtenderError if pandas is not installed."""
        return frame(sample.to_dict() for sample in self.samples)


def summed_up(runs: Sequence[Sequence[ExperimentSample]], moves: Sequence[int] = ()) -> ExperimentResult:
    """Returns the result of the runs, each of which has at least one measurement, and summaries after some moves."""
    names = dict.fromkeys(run[0].policy for run in runs)
    policies = [_summary(name, [run for run in runs if run[0].policy == name], moves) for name in names]
    return ExperimentResult(policies, [sample for run in runs for sample in run])


def _summary(policy: str, all_runs: Sequence[Sequence[ExperimentSample]], moves: Sequence[int]) -> PolicySummary:
    runs = [[sample for sample in run if not sample.moves] for run in all_runs]
    allocated = [run[-1].allocated for run in runs]
    at_80 = [next((each.fragmentation_ratio for each in run if each.arrived >= _PAPERS_PERCENT), None) for run in runs]
    reached = [ratio for ratio in at_80 if ratio is not None]
    return PolicySummary(
        policy,
        len(runs),
        _mean(allocated),
        round(float(np.std(allocated, ddof=1)), 4) if len(runs) > 1 else 0.0,
        _mean(reached) if len(reached) == len(runs) else None,
        _mean([run[-1].pending for run in runs]),
        _mean([run[-1].evictions for run in runs]),
        _mean([run[-1].kilowatts for run in runs]),
        {str(most): _mean([_after(most, run).allocated for run in all_runs]) for most in moves},
    )


def _after(moves: int, run: Sequence[ExperimentSample]) -> ExperimentSample:
    """Returns the last measurement after at most so many moves."""
    return [sample for sample in run if sample.moves <= moves][-1]


def _mean(numbers: Sequence[float]) -> float:
    return round(float(np.mean(numbers)), 4)


def as_text(result: ExperimentResult, metrics: Sequence[str]) -> Iterator[str]:
    """Yields the lines of a table with a row for each policy."""
    return aligned(_cells(result, metrics))


def _cells(result: ExperimentResult, metrics: Sequence[str]) -> list[list[str]]:
    shown: Mapping[str, tuple[str, Callable[[PolicySummary], str]]] = {
        "allocated": ("ALLOCATED", lambda each: f"{each.allocated:.2f} % ± {each.allocated_deviation:.2f}"),
        "fragmentation": ("FRAGMENTATION AT 80 %", _ratio),
        "pending": ("PENDING", lambda each: f"{each.pending:.1f}"),
        "evictions": ("EVICTIONS", lambda each: f"{each.evictions:.1f}"),
        "energy": ("POWER", lambda each: f"{each.kilowatts:.1f} kW"),
    }
    columns = [shown[metric] for metric in shown if metric in metrics]
    head = ["POLICY", "RUNS", *(name for name, _ in columns)]
    head += [f"AFTER {counted(int(most), 'move').upper()}" for most in result.policies[0].after_moves]
    rows = [
        [each.policy, str(each.runs), *(show(each) for _, show in columns), *_percentages(each)]
        for each in result.policies
    ]
    return [head, *rows]


def _percentages(each: PolicySummary) -> Iterator[str]:
    return (f"{allocated:.2f} %" for allocated in each.after_moves.values())


def _ratio(each: PolicySummary) -> str:
    return "-" if each.fragmentation_ratio is None else f"{each.fragmentation_ratio:.2f} %"


def as_csv(result: ExperimentResult) -> bytes:
    """Returns all measurements; the names of the columns are the keys of the JSON document."""
    text = io.StringIO()
    rows = [sample.to_dict() for sample in result.samples]
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_page(result: ExperimentResult, metrics: Sequence[str], title: str) -> bytes:
    """Returns one HTML page with the table and a plot for each metric. Raises ImportError without Matplotlib."""
    drawn = [_plot(result, *each) for metric in _PLOTS if metric in metrics for each in _PLOTS[metric]]
    if result.policies[0].after_moves:
        drawn.append(_plot(result, *_PLOTS["allocated"][0], over_moves=True))
    plots = "\n".join(drawn)
    cells = ("".join(f"<td>{escape(cell)}</td>" for cell in line) for line in _cells(result, metrics))
    rows = "\n".join(f"<tr>{line}</tr>" for line in cells)
    return _PAGE.format(title=escape(title), table=f"<table>{rows}</table>", plots=plots).encode()


def _plot(result: ExperimentResult, column: str, label: str, *, over_moves: bool = False) -> str:
    """Returns an SVG of the mean over the seeds for each policy; equal results give equal bytes.

    Args:
        over_moves: True to show the time after the last arrival, move by move, instead of the time before.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": column, "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 4.5), layout="constrained")
        axes = figure.add_subplot()
        is_timed = result.samples[0].hours is not None
        for summary in result.policies:
            _draw(axes, list(_points(result, summary.policy, column, over_moves=over_moves)), summary.policy)
        asked = "moves" if over_moves else "devices asked for so far, % of all"
        axes.set_xlabel("hours" if is_timed else asked)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.legend()
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue()[drawn.getvalue().index("<svg") :]


def _points(
    result: ExperimentResult, policy: str, column: str, *, over_moves: bool
) -> Iterator[tuple[int, float, float]]:
    """Yields (seed, x, y) for each measurement of the policy; over moves, the last one before them is the first."""
    before: dict[int, float] = {}
    for sample in result.samples:
        value: Any = getattr(sample, column)
        if sample.policy != policy:
            continue
        if sample.moves == 0:
            before[sample.seed] = value
        if over_moves == bool(sample.moves):
            x = sample.arrived if sample.hours is None else sample.hours
            yield sample.seed, sample.moves if over_moves else x, value
    if over_moves:
        yield from ((seed, 0, value) for seed, value in before.items())


def _draw(axes: Axes, points: Sequence[tuple[int, float, float]], name: str) -> None:
    """Draws the mean over the seeds; the runs measure at slightly different points, so each is interpolated."""
    runs: dict[int, list[tuple[float, float]]] = {}
    for seed, x, value in sorted(points):
        runs.setdefault(seed, []).append((x, value))
    grid = np.linspace(0, max(x for run in runs.values() for x, _ in run), _POINTS)
    lines = [np.interp(grid, [x for x, _ in run], [value for _, value in run]) for run in runs.values()]
    axes.plot(grid, np.mean(lines, axis=0), label=name)


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

    with closing(_runs(loaded, waiting, workers, dask)) as runs:
        for pair, made in runs:
            if not made:
                raise ExtenderError(f"{path}: no pod arrives")
            done[pair] = made
            if folder is not None:
                _keep(folder / loaded.key(*pair), made)
            report(len(done), len(pairs))
    return summed_up([done[pair] for pair in pairs], loaded.spec.moves)


def _runs(
    loaded: Experiment, pairs: Sequence[tuple[str, int]], workers: int, dask: str | None
) -> Generator[tuple[tuple[str, int], _Run], None, None]:
    """Makes the runs: in this process, in several, or on the workers of a Dask scheduler."""
    if dask is None and (workers == 1 or len(pairs) < 2):
        yield from ((pair, _make_one(loaded, *pair)) for pair in pairs)
        return
    with _processes(min(workers, len(pairs))) if dask is None else _dask(dask) as (submit, as_done):
        futures = {submit(_run_in_process, loaded.path.resolve(), *pair): pair for pair in pairs}
        for future in as_done(futures):
            yield futures[future], _DECODER.decode(future.result())


@contextmanager
def _processes(workers: int) -> Iterator[tuple[Any, Any]]:
    """Yields what submits a call to several processes, and `as_completed`."""
    # Ctrl-C reaches every process of the terminal, and should end those of the pool at once and without a traceback.
    by_default = signal.SIGINT, signal.SIG_DFL
    with ProcessPoolExecutor(workers, get_context("spawn"), signal.signal, by_default) as pool:
        try:
            yield pool.submit, as_completed
        except BrokenProcessPool:
            what = "a process was ended from outside; run the command again, which makes only the runs that are missing"
            raise ExtenderError(what) from None
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _dask(address: str) -> Iterator[tuple[Any, Any]]:
    """Yields what submits a call to a Dask scheduler, and Dask's own `as_completed`.

    The scheduler gives the calls of a lost worker to another.
    """
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
            yield partial(client.submit, pure=False), as_done
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
