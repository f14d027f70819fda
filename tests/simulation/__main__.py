"""Lives of the simulated cluster, from the command line. What is drawn from sets depends on PYTHONHASHSEED: have it 0.

python -m tests.simulation 17                  this seed, and everything that happens
python -m tests.simulation 0 200               the seeds from 0 to 199, up to the first that fails
python -m tests.simulation --own 0 200         with the project's own scheduler
python -m tests.simulation --best 0 200        with extenders whose filter answers the best node alone
python -m tests.simulation --broken NAME 0 60  with a fault of `broken` in it
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter

from tests.simulation.broken import BROKEN
from tests.simulation.tasks import Violation
from tests.simulation.world import Outcome, Plan, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--own", action="store_true", help="the project's own scheduler, and no extenders")
    parser.add_argument("--best", action="store_true", help="filter answers the best node alone")
    parser.add_argument("--broken", choices=BROKEN, metavar="NAME")
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int, nargs="?")
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        print("PYTHONHASHSEED is not 0: this will not happen alike again", file=sys.stderr)
    gc.set_threshold(20_000, 50, 100)  # the lives are short, and most of what they make lasts as long
    plan = BROKEN.get(asked.broken, Plan(own_scheduler=asked.own, filter_answer="best" if asked.best else "feasible"))
    try:
        if asked.end is None:
            print(simulate(asked.first, plan, echo=True))
        else:
            _run(range(asked.first, asked.end), plan)
    except Violation as violation:
        print(violation, f"again, with all that happens:\n    {_again(violation, asked)}", sep="\n\n")
        return 1
    return 0


def _run(seeds: range, plan: Plan) -> None:
    began_at, outcomes = time.process_time(), list[Outcome]()
    for seed in seeds:
        outcomes.append(simulate(seed, plan))
    sums: Counter[str] = Counter()
    for outcome in outcomes:
        sums.update(bound=outcome.bound, crashes=outcome.crashes, steps=outcome.steps, waiting=outcome.left)
    print(f"{len(seeds)} lives in {time.process_time() - began_at:.1f} s of CPU: {dict(sums)}")


def _again(violation: Violation, asked: argparse.Namespace) -> str:
    seed = str(violation).removeprefix("seed ").partition(":")[0]
    broken = f"--broken '{asked.broken}' " if asked.broken else ""
    return f"PYTHONHASHSEED=0 python -m tests.simulation {'--own ' * asked.own}{'--best ' * asked.best}{broken}{seed}"


if __name__ == "__main__":
    sys.exit(main())
