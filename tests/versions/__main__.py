"""`make test-versions`: runs the end-to-end tests against each minor version, and writes docs/versions.md."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path

from tests.stock.build import (
    NEXT_MINOR,
    VERSIONS,
    BuildError,
    GoMissingError,
    build,
    build_next_api_server,
    cache_directory,
)
from tests.versions.survey import Survey, survey
from tests.versions.table import document

MINORS = (*VERSIONS, NEXT_MINOR)
DOCUMENT = Path(__file__).parents[2] / "docs/versions.md"


def main() -> None:
    parser = ArgumentParser("python -m tests.versions", description=__doc__)
    parser.add_argument("--minor", action="append", choices=MINORS, help="may be repeated; default all")
    parser.add_argument("--write", type=Path, default=DOCUMENT, metavar="FILE", help=f"default {DOCUMENT}")
    parser.add_argument("tests", nargs="*", default=["tests/end_to_end"], help="default tests/end_to_end")
    options = parser.parse_args()
    results = cache_directory() / "versions-results"
    results.mkdir(parents=True, exist_ok=True)
    obstacle = ""
    for minor in options.minor or MINORS:
        if minor == NEXT_MINOR:
            try:
                build_next_api_server(_progress)
            except BuildError as error:
                obstacle = str(error)
                _progress(obstacle)
                continue
        found = survey(minor, build(_progress, minor), options.tests)
        (results / f"{minor}.json").write_text(json.dumps(found._asdict()))
    surveys = {
        minor: Survey(**json.loads(path.read_text()))
        for minor in MINORS
        if (path := results / f"{minor}.json").exists()
    }
    options.write.write_text(document(surveys, obstacle))
    if failed := [f"{minor}: {name}" for minor, each in surveys.items() for name in each.failed]:
        sys.exit("\n".join(["tests failed:", *failed]))


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except (GoMissingError, BuildError) as error:
        sys.exit(str(error))
