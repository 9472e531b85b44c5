"""`python -m tests.simulation --seed 12345` tells what happens in a world; `--soak` looks for a broken promise."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

from tests.simulation.crowd_model import crowded_plan_of
from tests.simulation.growing import plan_of
from tests.simulation.loop import simulated_loop
from tests.simulation.plan import Plan, shown
from tests.simulation.shrink import broken_by, smallest
from tests.simulation.world import Broken, run_plan

_AT_ONCE = 200  # seeds in one loop


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="let this world happen, and tell everything")
    parser.add_argument("--soak", action="store_true", help="one world after the other, until stopped")
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("SOAK_MINUTES") or "inf"))
    parser.add_argument("--begin", type=int, help="the first seed of a soak; by default it depends on the time")
    parser.add_argument("--crowded", action="store_true", help="worlds in which people answer and cancel at any time")
    args = parser.parse_args()
    make = crowded_plan_of if args.crowded else plan_of
    if args.seed is not None:
        return replay(make(args.seed))
    if not args.soak:
        parser.error("what is it to be: --seed or --soak?")
    return soak(make, args.minutes, args.begin)


def replay(plan: Plan) -> int:
    """Tell what happens in the world of a plan."""
    lines: list[str] = []
    with simulated_loop() as loop:
        try:
            run_plan(loop, plan, lines)
        except Broken as broken:
            print("\n".join(lines), broken, sep="\n\n")
            show_smallest(broken)
            return 1
    print("\n".join(lines), "every promise was kept", sep="\n")
    return 0


def show_smallest(broken: Broken) -> None:
    print("\nmaking it smaller ...", flush=True)
    plan = smallest(broken.plan)
    left = broken_by(plan)
    print(f"the smallest plan found that breaks something:\n{shown(plan)}\n{left}", flush=True)


def soak(make: Callable[[int], Plan], minutes: float, begin: int | None) -> int:
    """Let worlds happen until time is up, or somebody stops it."""
    first = int(time.time()) * 1000 if begin is None else begin
    started = time.monotonic()
    done = failed = 0
    print(f"worlds from seed {first} on; stop with Ctrl-C", flush=True)
    try:
        while time.monotonic() - started < minutes * 60:
            for broken in _worlds(make, first + done, _AT_ONCE):
                failed += 1
                print(f"\n{broken}", flush=True)
                show_smallest(broken)
            done += _AT_ONCE
            rate = done / (time.monotonic() - started)
            print(f"{done} worlds, {failed} broke a promise, {rate:.0f} in a second", flush=True)
    except KeyboardInterrupt:
        print()
    print(f"in all: {done} worlds in {(time.monotonic() - started) / 60:.1f} minutes, {failed} broke a promise")
    return 1 if failed else 0


def _worlds(make: Callable[[int], Plan], first: int, count: int) -> list[Broken]:
    found = []
    with simulated_loop() as loop:
        for seed in range(first, first + count):
            try:
                run_plan(loop, make(seed))
            except Broken as broken:
                found.append(broken)
    return found


if __name__ == "__main__":
    sys.exit(main())
