"""`make test-upstream`: builds and runs Kubernetes' own specs, and writes docs/conformance.md."""

from __future__ import annotations

import sys
import tempfile
from argparse import ArgumentParser
from itertools import product
from pathlib import Path

from tests.stock.build import BuildError, GoMissingError, build, cache_directory
from tests.upstream.cluster import GROUPS, MODES, UpstreamCluster, run_specs
from tests.upstream.suite import build_suite
from tests.upstream.table import document, results_of, worse

DOCUMENT = Path(__file__).parents[2] / "docs/conformance.md"


def main() -> None:
    parser = ArgumentParser("python -m tests.upstream", description=__doc__)
    parser.add_argument("--mode", action="append", choices=MODES, help="may be repeated; default all")
    parser.add_argument("--group", action="append", choices=GROUPS, help="may be repeated; default all")
    parser.add_argument("--timeout-minutes", type=int, default=60, help="of one group in one mode (default 60)")
    parser.add_argument("--write", type=Path, default=DOCUMENT, metavar="FILE", help=f"default {DOCUMENT}")
    options = parser.parse_args()
    binaries = {**build(report=_progress), **build_suite(report=_progress)}
    results = cache_directory() / "upstream-results"
    reports = {(group, mode): results / mode / f"{group.replace(' ', '-')}.json" for group in GROUPS for mode in MODES}
    for mode, group in product(options.mode or MODES, options.group or GROUPS):
        _progress(f"{mode}: {group} ...")
        with (
            tempfile.TemporaryDirectory() as directory,
            UpstreamCluster(binaries, Path(directory), GROUPS[group].nodes) as plane,
            MODES[mode](plane),
        ):
            run_specs(plane, group, reports[group, mode], options.timeout_minutes)
    found = results_of(reports)
    options.write.write_text(document(found, list(MODES)))
    if missed := worse(found, list(MODES)):
        sys.exit("\n".join(["what passes under the stock scheduler failed:", *missed]))


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except (GoMissingError, BuildError) as error:
        sys.exit(str(error))
