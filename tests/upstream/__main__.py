"""`make test-upstream`: builds and runs Kubernetes' own specs, and writes docs/conformance.md."""

from __future__ import annotations

import sys
import tempfile
from argparse import ArgumentParser
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

from tests.stock.build import KUBERNETES_VERSION, BuildError, GoMissingError, build, cache_directory
from tests.upstream.cluster import GROUPS, MODES, UpstreamCluster, run_specs
from tests.upstream.suite import build_suite
from tests.upstream.table import Results, document, results_of, worse

DOCUMENT = Path(__file__).parents[2] / "docs/conformance.md"


def main() -> None:
    parser = ArgumentParser("python -m tests.upstream", description=__doc__)
    parser.add_argument("--mode", action="append", choices=MODES, help="may be repeated; default all")
    parser.add_argument("--group", action="append", choices=GROUPS, help="may be repeated; default all")
    parser.add_argument("--spec", default="", metavar="REGEX", help="these instead of a whole group")
    parser.add_argument("--runs", type=int, default=1, help="how often (default 1; 0 only writes)")
    parser.add_argument("--timeout-minutes", type=int, default=60, help="of one group in one mode (default 60)")
    parser.add_argument("--write", type=Path, default=DOCUMENT, metavar="FILE", help=f"default {DOCUMENT}")
    options = parser.parse_args()
    binaries = {**build(report=_progress, on_request=["kubectl"]), **build_suite(report=_progress)}
    results = cache_directory() / f"upstream-results-{KUBERNETES_VERSION}"
    runs = product(range(options.runs), options.mode or MODES, options.group or GROUPS)
    for number, mode, group in runs:
        _progress(f"{mode}: {group}, run {number + 1} of {options.runs} ...")
        report = _directory(results, group, mode) / f"{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
        with (
            tempfile.TemporaryDirectory() as directory,
            UpstreamCluster(binaries, Path(directory), GROUPS[group].nodes, GROUPS[group].gates) as plane,
            MODES[mode](plane),
        ):
            run_specs(plane, GROUPS[group], report, options.timeout_minutes, options.spec)
        _write(results, options.write)
    if missed := worse(_write(results, options.write), list(MODES)):
        sys.exit("\n".join(["what passes under the stock scheduler failed:", *missed]))


def _write(results: Path, document_file: Path) -> Results:
    """Writes the document of all runs so far, and returns what it was made of."""
    found = results_of({(g, m): sorted(_directory(results, g, m).glob("*.json")) for g in GROUPS for m in MODES})
    document_file.write_text(document(found, list(MODES)))
    return found


def _directory(results: Path, group: str, mode: str) -> Path:
    return results / mode / group.replace(" ", "-")


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except (GoMissingError, BuildError) as error:
        sys.exit(str(error))
