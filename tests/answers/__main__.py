"""Draws clusters and checks every answer about them: `make fuzz-answers ARGS='--clusters 10000 --seed 7'`."""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
import time
from functools import partial

from extender.errors import ExtenderError
from tests.answers.case import Check
from tests.answers.checks import CHECKS, faults
from tests.answers.clusters import CHUNK, drawn
from tests.builders import Object
from tests.conformance.reduction import reduced

LONGEST = 60
"""So many seconds may all answers about one cluster take; a check that hangs is a fault."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz-answers", description=__doc__)
    parser.add_argument("--clusters", type=int, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), metavar="N")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="N", help="end after so long")
    parser.add_argument("--only", type=int, metavar="N", help="one cluster of the seed, made as small as it fails")
    options = parser.parse_args()
    if options.only is not None:
        return _one(drawn(options.seed, options.only // CHUNK)[options.only % CHUNK])
    return _all(options.seed, options.clusters, time.monotonic() + options.seconds)


def _all(seed: int, clusters: int, end: float) -> int:
    checked = failed = 0
    signal.signal(signal.SIGALRM, _interrupt)
    for chunk in range(-(-clusters // CHUNK)):
        for case in drawn(seed, chunk):
            signal.alarm(LONGEST)
            found = faults(case)
            signal.alarm(0)
            checked += 1
            failed += bool(found)
            for check, wrong in found.items():
                print(f"{case['name']} {check}: {wrong[0]}", flush=True)
            if checked == clusters or time.monotonic() > end:
                break
        if checked == clusters or time.monotonic() > end:
            break
    print(f"seed {seed}: {checked} clusters, {failed} with a fault")
    return 1 if failed else 0


def _interrupt(_number: int, _frame: object) -> None:
    raise TimeoutError(f"the answers take longer than {LONGEST} s")


def _one(case: Object) -> int:
    found = faults(case)
    for check in CHECKS:
        if check.__name__ in found:
            small = reduced(case, partial(_fails_alike, check=check, kind=_kind(found[check.__name__])))
            print(json.dumps(small, indent=1), check.__name__, *faults(small, [check])[check.__name__], sep="\n")
    return 1 if found else 0


def _fails_alike(part: Object, check: Check, kind: str) -> bool:
    try:
        return _kind(faults(part, [check]).get(check.__name__, [""])) == kind
    except ExtenderError:
        return False  # what is left is not a valid cluster


def _kind(wrong: list[str]) -> str:
    """Returns the words of a fault that name no object, as far as can be seen."""
    is_raised = wrong[0].partition(":")[0].endswith("Error")
    return wrong[0] if is_raised else " ".join(word for word in wrong[0].split() if word.isalpha())[-40:]


if __name__ == "__main__":
    sys.exit(main())
