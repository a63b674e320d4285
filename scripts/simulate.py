"""Run the simulator: seeds until something is found, or until the time or the number of runs is used up.

    scripts/simulate [--seed N] [--runs N] [--minutes M] [--mutants] [--log]

The seed is the only input of a run; it is printed first, with the command that repeats it. `tests/simulation` says what
is simulated and what is checked.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BATCH = 10


def _one_hash_seed() -> None:
    """Sets iterate in an order that depends on the hash seed: start over with a fixed one."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})


def simulate_batch(first: int, count: int) -> list[tuple[int, list[str], int, dict[str, int], float]]:
    """Run some seeds; for each what was found, operations, counters and seconds."""
    from tests.simulation.simulation import simulate

    out = []
    for seed in range(first, first + count):
        result = simulate(seed)
        out.append((seed, result.violations, result.operations, result.counters, result.seconds))
    return out


def try_mutant(title: str, first: int, runs: int, seconds: float) -> tuple[str, int, int, str]:
    """Run a breakage until it is caught; runs, the seed and what was said, or -1 and "" where it was not."""
    from tests.simulation.mutants import broken
    from tests.simulation.simulation import simulate

    end = time.process_time() + seconds
    done = 0
    while done < runs and time.process_time() < end:
        seed = first + done
        done += 1
        try:
            with broken(title):
                violations = simulate(seed).violations
        except (AttributeError, NameError, TypeError):
            raise  # The breakage does not fit the code any more.
        except Exception as error:  # noqa: BLE001 - code that stumbles over what was broken is caught too.
            violations = [f"{type(error).__name__}: {error}"]
        if violations and not simulate(seed).violations:
            return title, done, seed, violations[0]
    return title, done, -1, ""


def batches(first: int, runs: int | None, end: float) -> Iterator[tuple[int, int]]:
    """(first seed, count) of each batch, while there is time."""
    done = 0
    while time.monotonic() < end and (runs is None or done < runs):
        count = BATCH if runs is None else min(BATCH, runs - done)
        yield first + done, count
        done += count


def explore(first: int, runs: int | None, minutes: float | None, workers: int) -> int:
    """Run seeds; how many had something to object to."""
    started = time.monotonic()
    end = started + (minutes * 60 if minutes else 1e9)
    operations = done = found = 0
    busy = 0.0
    counters: Counter[str] = Counter()
    upcoming = batches(first, runs, end)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ProcessPoolExecutor(workers) as pool, contextlib.suppress(KeyboardInterrupt):
        waiting = {pool.submit(simulate_batch, *batch) for _, batch in zip(range(workers * 2), upcoming, strict=False)}
        while waiting:
            ready = next(as_completed(waiting))
            waiting.discard(ready)
            for seed, violations, count, counted, seconds in ready.result():
                operations, done, busy = operations + count, done + 1, busy + seconds
                counters.update(counted)
                if violations:
                    found += 1
                    print(f"seed {seed}: {len(violations)} found; repeat with: scripts/simulate --seed {seed}")
                    for violation in violations[:5]:
                        print(f"    {violation}", flush=True)
            batch = next(upcoming, None)
            if batch is not None:
                waiting.add(pool.submit(simulate_batch, *batch))
    for name, value in sorted(counters.items()):
        print(f"  {name:<28} {value}")
    wall = time.monotonic() - started
    print(
        f"{done} seeds from {first}, {operations} operations in {wall:.0f} s,"
        f" {operations / max(busy, 1e-9) * 60:.0f} a minute on one core; {found} seeds found something"
    )
    return found


def mutants(first: int, runs: int, workers: int, only: str, minutes: float) -> int:
    """Break each rule, for at most so many runs and minutes of a core each; how many breakages were not caught."""
    from tests.simulation.mutants import MUTANTS

    missed = 0
    with ProcessPoolExecutor(workers) as pool:
        waiting = [pool.submit(try_mutant, title, first, runs, minutes * 60) for title in MUTANTS if only in title]
        for ready in as_completed(waiting):
            title, done, seed, said = ready.result()
            missed += seed < 0
            verdict = (
                f"caught after {done:>4} runs, seed {seed}: {said[:90]}" if seed >= 0 else f"MISSED in {done} runs"
            )
            print(f"{title:<46} {verdict}", flush=True)
    print(f"{len(waiting) - missed} of {len(waiting)} breakages were caught")
    return missed


def main() -> int:
    """Parse the arguments and run."""
    _one_hash_seed()
    sys.path.insert(0, str(ROOT))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="the first seed; alone: only this one, with a log of all that happens")
    parser.add_argument("--runs", type=int, help="how many seeds")
    parser.add_argument("--minutes", type=float, help="for how long; with --mutants: of a core for each")
    parser.add_argument("--mutants", nargs="?", const="", help="break one rule after the other (those with this text)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--log", action="store_true", help="say everything that happens")
    given = parser.parse_args()
    if given.mutants is not None:
        return int(mutants(given.seed or 0, given.runs or 3000, given.workers, given.mutants, given.minutes or 5.0) > 0)
    if given.seed is not None and given.runs is None and given.minutes is None:
        from tests.simulation.simulation import simulate

        print(f"seed {given.seed}: repeat with: scripts/simulate --seed {given.seed}", flush=True)
        result = simulate(given.seed, log=print if given.log else None)
        print(*result.violations, sep="\n")
        print(
            f"trace {result.trace:08x}, {result.operations} operations, {result.events} events,"
            f" {result.virtual:.1f} virtual seconds in {result.seconds:.2f} s: {len(result.violations)} found"
        )
        return int(bool(result.violations))
    first = given.seed if given.seed is not None else int.from_bytes(os.urandom(4), "big")
    runs = given.runs if given.runs or given.minutes else 500
    repeat = f"scripts/simulate --seed {first}" + (f" --runs {runs}" if runs else f" --minutes {given.minutes:g}")
    print(f"seeds from {first}: repeat with: {repeat}", flush=True)
    return int(explore(first, runs, given.minutes, given.workers) > 0)


if __name__ == "__main__":
    sys.exit(main())
