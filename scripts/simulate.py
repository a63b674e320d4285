"""Run the simulator: seeds until something is found, or until the time or the number of runs is used up.

    scripts/simulate [--seed N] [--short] [--runs N] [--minutes M] [--mutants] [--log]
    scripts/simulate --overnight [OPERATIONS] [--seed N]

`--overnight` runs until so many operations (30 million) were done on the very commit, keeps what was done in
`build/simulation`, continues there when it is started again, and prints the tables of
docs/reference/simulation-runs.md.

The seed is the only input of a run; it is printed first, with the command that repeats it. A run that `scripts/test`
found is repeated with `--short`, since it cuts the phase with faults short. `tests/simulation` says what is simulated
and what is checked.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BATCH = 10


def simulate_batch(first: int, count: int, short: bool) -> list[tuple[int, list[str], int, dict[str, int], float]]:
    """Run some seeds; for each what was found, operations, counters and seconds."""
    from tests.simulation.simulation import shortened, simulate

    out: list[tuple[int, list[str], int, dict[str, int], float]] = []
    for seed in range(first, first + count):
        try:
            result = simulate(seed, shortened(seed) if short else None)
        except Exception as error:  # noqa: BLE001 - the code that was run has a defect, which is a finding.
            where = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            out.append((seed, [said], 0, {}, 0.0))
            continue
        out.append((seed, result.violations, result.operations, result.counters, result.seconds))
    return out


def _undisturbed() -> None:
    """A worker finishes its batch: who interrupts the run interrupts only what gives out batches.

    A run's cycles are few and small; looking for them after every 700 new objects took 5 % of the time.
    """
    gc.freeze()
    gc.set_threshold(100_000)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def try_mutant(title: str, first: int, runs: int, seconds: float, short: bool) -> tuple[str, int, int, str]:
    """Run a breakage until it is caught; runs, the seed and what was said, or -1 and "" where it was not."""
    from tests.simulation.breakages.table import broken
    from tests.simulation.focus import FOCUSED
    from tests.simulation.simulation import shortened, simulate

    made = FOCUSED.get(title, shortened if short else lambda seed: None)

    def run(seed: int) -> list[str]:
        return simulate(seed, made(seed)).violations

    end = time.process_time() + seconds
    done = 0
    while done < runs and time.process_time() < end:
        seed = first + done
        done += 1
        try:
            with broken(title):
                violations = run(seed)
        except (AttributeError, NameError, TypeError):
            raise  # The breakage does not fit the code any more.
        except Exception as error:  # noqa: BLE001 - code that stumbles over what was broken is caught too.
            violations = [f"{type(error).__name__}: {error}"]
        if violations and not run(seed):
            return title, done, seed, violations[0]
    return title, done, -1, ""


def batches(first: int, runs: int | None, end: float) -> Iterator[tuple[int, int]]:
    """(first seed, count) of each batch, while there is time."""
    done = 0
    while time.monotonic() < end and (runs is None or done < runs):
        count = BATCH if runs is None else min(BATCH, runs - done)
        yield first + done, count
        done += count


def explore(first: int, runs: int | None, minutes: float | None, workers: int, short: bool) -> int:
    """Run seeds; how many had something to object to."""
    started = time.monotonic()
    end = started + (minutes * 60 if minutes else 1e9)
    operations = done = found = 0
    busy = 0.0
    counters: Counter[str] = Counter()
    upcoming = batches(first, runs, end)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ProcessPoolExecutor(workers) as pool, contextlib.suppress(KeyboardInterrupt):
        started_with = zip(range(workers * 2), upcoming, strict=False)
        waiting = {pool.submit(simulate_batch, *batch, short) for _, batch in started_with}
        while waiting:
            ready = next(as_completed(waiting))
            waiting.discard(ready)
            for seed, violations, count, counted, seconds in ready.result():
                operations, done, busy = operations + count, done + 1, busy + seconds
                counters.update(counted)
                if violations:
                    found += 1
                    print(f"seed {seed}: {len(violations)} found; repeat with: {_again(seed, short)}")
                    for violation in violations[:5]:
                        print(f"    {violation}", flush=True)
            batch = next(upcoming, None)
            if batch is not None:
                waiting.add(pool.submit(simulate_batch, *batch, short))
    for name, value in sorted(counters.items()):
        print(f"  {name:<28} {value}")
    wall = time.monotonic() - started
    print(
        f"{done} seeds from {first}, {operations} operations in {wall:.0f} s,"
        f" {operations / max(busy, 1e-9) * 60:.0f} a minute on one core; {found} seeds found something"
    )
    return found


def overnight(first: int | None, operations: int, workers: int, kept: Path) -> int:
    """Run seeds until so many operations were done on this commit; how many had something to object to."""
    from tests.simulation.nightly import Night, commit_of

    night = Night(*commit_of(ROOT), kept)
    start = first if first is not None else night.next_seed
    start = int.from_bytes(os.urandom(4), "big") if start is None else start
    part = night.begin(start)
    stop: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: stop.append(received))
    print(f"commit {night.commit[:12]}{' and changes' * night.dirty}, seeds from {start}", flush=True)
    began, said = time.monotonic() - part.wall, time.monotonic()
    upcoming = start
    with ProcessPoolExecutor(workers, initializer=_undisturbed) as pool:
        waiting: set[Future[Any]] = set()
        while waiting or not stop:
            while len(waiting) < workers * 2 and not stop:
                if night.operations + len(waiting) * BATCH * part.operations // max(part.seeds, 1) >= operations:
                    break
                waiting.add(pool.submit(simulate_batch, upcoming, BATCH, False))
                upcoming += BATCH
            if not waiting:
                break
            ready, waiting = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in ready:
                for result in future.result():
                    part.add(*result)
                    if result[1]:
                        print(f"seed {result[0]}: {'; '.join(result[1][:3])}", flush=True)
            part.wall = time.monotonic() - began
            night.save()
            if time.monotonic() - said > 60:
                said = time.monotonic()
                print(f"{part.seeds} seeds, {night.operations:,} operations in {part.wall:.0f} s", flush=True)
    print(f"\n{night.tables()}")
    if night.operations < operations:
        print(f"\nended early; to go on: scripts/simulate --overnight {operations} --seed {upcoming}")
    for name in night.missing():
        print(f"never came about: {name}")
    return len(night.found()) + len(night.missing())


def mutants(first: int, runs: int, workers: int, only: str, minutes: float, short: bool) -> int:
    """Break each rule, for at most so many runs and minutes of a core each; how many breakages were not caught."""
    from tests.simulation.breakages.table import BREAKAGES

    missed = 0
    with ProcessPoolExecutor(workers) as pool:
        titles = [title for title in BREAKAGES if only in title]
        waiting = [pool.submit(try_mutant, title, first, runs, minutes * 60, short) for title in titles]
        for ready in as_completed(waiting):
            title, done, seed, said = ready.result()
            missed += seed < 0
            verdict = (
                f"caught after {done:>4} runs, seed {seed}: {said[:90]}" if seed >= 0 else f"MISSED in {done} runs"
            )
            print(f"{title:<46} {verdict}", flush=True)
    print(f"{len(waiting) - missed} of {len(waiting)} breakages were caught")
    return missed


def _again(seed: int, short: bool) -> str:
    return f"scripts/simulate --seed {seed}" + " --short" * short


def main() -> int:
    """Parse the arguments and run."""
    sys.path.insert(0, str(ROOT))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="the first seed; alone: only this one, with a log of all that happens")
    parser.add_argument("--short", action="store_true", help="runs as short as those of scripts/test")
    parser.add_argument("--runs", type=int, help="how many seeds")
    parser.add_argument("--minutes", type=float, help="for how long; with --mutants: of a core for each")
    parser.add_argument("--mutants", nargs="?", const="", help="break one rule after the other (those with this text)")
    parser.add_argument(
        "--overnight", type=int, nargs="?", const=30_000_000, metavar="OPERATIONS",
        help="run until so many operations were done on this commit (30 million), and print the tables for the docs",
    )  # fmt: skip
    parser.add_argument("--kept", type=Path, default=ROOT / "build" / "simulation", help="where --overnight keeps it")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--log", action="store_true", help="say everything that happens")
    given = parser.parse_args()
    if given.mutants is not None:
        limits = (given.runs or 3000, given.workers, given.mutants, given.minutes or 5.0, given.short)
        return int(mutants(given.seed or 0, *limits) > 0)
    if given.overnight is not None:
        return int(overnight(given.seed, given.overnight, given.workers, given.kept) > 0)
    if given.seed is not None and given.runs is None and given.minutes is None:
        from tests.simulation.simulation import shortened, simulate

        print(f"seed {given.seed}: repeat with: {_again(given.seed, given.short)}", flush=True)
        fate = shortened(given.seed) if given.short else None
        result = simulate(given.seed, fate, log=print if given.log else None)
        print(*result.violations, sep="\n")
        print(
            f"trace {result.trace:08x}, {result.operations} operations, {result.events} events,"
            f" {result.virtual:.1f} virtual seconds in {result.seconds:.2f} s: {len(result.violations)} found"
        )
        return int(bool(result.violations))
    first = given.seed if given.seed is not None else int.from_bytes(os.urandom(4), "big")
    runs = given.runs if given.runs or given.minutes else 500
    repeat = _again(first, given.short) + (f" --runs {runs}" if runs else f" --minutes {given.minutes:g}")
    print(f"seeds from {first}: repeat with: {repeat}", flush=True)
    return int(explore(first, runs, given.minutes, given.workers, given.short) > 0)


if __name__ == "__main__":
    sys.exit(main())
