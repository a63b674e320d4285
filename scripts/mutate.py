"""Make one mistake of one line after the other, and see whether the tests or the simulator object.

    scripts/mutate [--list] [--only TEXT] [--group GROUP] [--no-tests] [--no-simulate | --simulate MINUTES]

`tests/mutation/*.toml` list the mistakes. Each is made in a copy of the tree, never in the tree itself. Then,
until something objects, come the test file of the changed module, the tests of its folder, the tests of all folders
without those that start processes to kill or Spark, and some minutes of simulation. An objection counts only where it
objects again, by itself, and not to the tree without the mistake: so an unsteady test catches nothing.

The table on standard output is Markdown. The exit code is 0 where everything was caught, 1 where something was not, and
2 where a mistake does not fit the code any more: its old text has to stand in its file exactly once.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MUTANTS = ROOT / "tests" / "mutation"
FOLDERS = ("messenger", "protocol", "proxy", "server", "standby", "client")
TESTS_SECONDS_MAX = 900.0
"""Of one run of pytest; a mistake by which the tests take longer than that is caught."""

SEED = 70_000_000
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)
OBJECTION = re.compile(r"^seed (\d+): \d+ found")


class Unfit(Exception):
    """A mistake does not fit the code: its old text is not there exactly once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake.

    Attributes:
        file: the changed one, from the root of the repository.
        old, new: the text that stands there once, and the text instead.
        wrong: its harm.
        group: "chosen", "blind", "third", "fourth"; "reserve", which stand in for those that turned out to change
            nothing; "earlier"; "doors": checks of keys; "trains"; "standby": the rules of two members of a server;
            "calls"; "binding": the tie of a Spark subscription to a checkpoint; "reopening": how a client opens itself
            again; or "accumulator": how a put closes the waiting messages of its topic.
        equivalent: why this one changes nothing; "" where it does.
    """

    name: str
    file: str
    old: str
    new: str
    wrong: str
    group: str = "chosen"
    equivalent: str = ""


def load(folder: Path = MUTANTS) -> list[Mutant]:
    """Every mistake that is listed, in order."""
    return [
        Mutant(**row)
        for path in sorted(folder.glob("*.toml"))
        for row in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    ]


def applied(mutant: Mutant, source: str) -> str:
    """The source with the mistake in it.

    Raises:
        Unfit: the old text does not stand there exactly once.
    """
    times = source.count(mutant.old)
    if times != 1:
        raise Unfit(f"{mutant.name}: its old text stands {times} times in {mutant.file}")
    return source.replace(mutant.old, mutant.new)


class Tree:
    """A copy of the files of the repository, as they stand in the working tree, also of new ones; not of ignored ones.

    Args:
        place: where it is made.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self._written = time.time()
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            source, target = ROOT / name, place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                target.symlink_to(source.readlink())
            elif source.is_file():
                shutil.copy2(source, target)
        self.environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONHASHSEED": "0", "PYTEST_ADDOPTS": ""}

    @contextmanager
    def mistaken(self, mutant: Mutant) -> Iterator[None]:
        """The tree has the mistake in it meanwhile.

        Raises:
            Unfit: it does not fit.
        """
        path = self.place / mutant.file
        source = path.read_text()
        self._write(path, applied(mutant, source))
        try:
            yield
        finally:
            self._write(path, source)

    def _write(self, path: Path, source: str) -> None:
        path.write_text(source)
        self._written += 1.0  # Compiled files are told apart by the second, and by a size that may be the same.
        os.utime(path, (self._written, self._written))

    def run(self, command: Sequence[str], seconds: float, until: re.Pattern[str] | None = None) -> tuple[int, str]:
        """Run a Python program in it; its exit code, -1 where it took too long, and its output.

        Args:
            until: ended as soon as a line of its output matches.
        """
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=self.place,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        previous = signal.signal(signal.SIGALRM, lambda *_: os.killpg(process.pid, signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, seconds)
        said: list[str] = []
        try:
            for line in process.stdout:
                said.append(line)
                if until is not None and until.match(line):
                    said += [next(process.stdout, "")]  # The finding stands in the line behind it.
                    break
        finally:
            took_too_long = not signal.getitimer(signal.ITIMER_REAL)[0]
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            process.stdout.close()
        return (-1 if took_too_long else code), "".join(said)


class Trial:
    """The tests and seeds that object to a mistake.

    Args:
        tree: the copy that it is made in.
        tests: whether the tests are run.
        minutes: of simulation for each; 0: none.
        seed: the first of it.
    """

    def __init__(self, tree: Tree, tests: bool, minutes: float, seed: int) -> None:
        self._tree, self._run_tests, self._minutes, self._seed = tree, tests, minutes, seed
        self._unsteady: set[str] = set()
        """Tests and seeds that object to the tree as it is."""

    def caught_by(self, mutant: Mutant) -> str:
        """The catcher of the mistake, in a few words; "" for nothing.

        Raises:
            Unfit: it does not fit.
        """
        for title, paths in self._suites(mutant) if self._run_tests else ():
            failed = self._tests(mutant, paths)
            if failed:
                return f"{title}: `{failed}`"
        return self._simulation(mutant) if self._minutes else ""

    def _suites(self, mutant: Mutant) -> list[tuple[str, list[str]]]:
        """The tests to run, nearest first."""
        *within, module = Path(mutant.file).with_suffix("").parts[1:]
        folder = next((one for one in reversed(within) if one in FOLDERS), within[0])  # `server/standby` has its own.
        own = Path("tests", folder, f"test_{module}.py")
        suites = [("its module's tests", [str(own)])] if (self._tree.place / own).exists() else []
        suites.append(("its folder's tests", [f"tests/{folder}"]))
        suites.append(("other tests", [f"tests/{other}" for other in FOLDERS if other != folder]))
        return suites

    def _tests(self, mutant: Mutant, paths: Sequence[str]) -> str:
        """The first test that objects, or ""."""
        while True:
            left_out = [option for test in sorted(self._unsteady) for option in ("--deselect", test)]
            options = ["-x", "-rfE", "--tb=no", "-m", "not faults and not spark", "-p", "no:cacheprovider"]
            with self._tree.mistaken(mutant):
                code, said = self._tree.run(["-m", "pytest", *options, *left_out, *paths], TESTS_SECONDS_MAX)
            if code in {0, 5}:
                return ""
            found = FAILED.search(said)
            if found is None:
                return "the run does not end" if code == -1 else f"pytest ends with {code}"
            test = found[1]
            if self._tells_apart(mutant, test):
                return test.removeprefix("tests/")
            self._unsteady.add(test)
            print(f"{test} is unsteady: it is left out", file=sys.stderr, flush=True)

    def _tells_apart(self, mutant: Mutant, test: str) -> bool:
        """Whether a test fails by itself with the mistake, and passes without."""
        command = ["-m", "pytest", "--tb=no", "-p", "no:cacheprovider", test]
        with self._tree.mistaken(mutant):
            fails = self._tree.run(command, TESTS_SECONDS_MAX)[0] != 0
        return fails and self._tree.run(command, TESTS_SECONDS_MAX)[0] == 0

    def _simulation(self, mutant: Mutant) -> str:
        """The first seed that finds something, with its finding; or ""."""
        seed, end = self._seed, time.monotonic() + 60 * self._minutes
        while (left := end - time.monotonic()) > 1:
            command = ["scripts/simulate.py", "--seed", str(seed), "--minutes", f"{left / 60:.4f}", "--workers", "1"]
            with self._tree.mistaken(mutant):
                code, said = self._tree.run(command, left + 120, OBJECTION)
            last = said.rstrip().splitlines()[-1].strip() if said.strip() else ""
            found = [match for line in said.splitlines() if (match := OBJECTION.match(line))]
            if not found:
                return f"simulation stumbles: {last[:100]}" if code else ""
            seed = int(found[0][1])
            if self._tree.run(["scripts/simulate.py", "--seed", str(seed)], 600)[0] == 0:
                return f"simulation, seed {seed} (of {seed - self._seed + 1}): {last[:100]}"
            print(f"seed {seed} finds something without a mistake too: it is left out", file=sys.stderr, flush=True)
            seed += 1
        return ""


def check(mutants: Sequence[Mutant]) -> list[str]:
    """The listed mistakes that do not fit the code any more."""
    wrong = []
    for mutant in mutants:
        try:
            applied(mutant, (ROOT / mutant.file).read_text())
        except (Unfit, OSError) as error:
            wrong.append(str(error))
    return wrong


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="say which there are and what is wrong by each, and end")
    parser.add_argument("--only", default="", metavar="TEXT", help="those with this text in their name or file")
    groups = "chosen, blind, third, fourth, reserve, earlier, doors, standby, trains, calls, groups, all"
    parser.add_argument("--group", default="chosen", help=f"those of this group: {groups}")
    parser.add_argument("--simulate", type=float, default=10.0, metavar="MINUTES", help="of simulation (default: 10)")
    parser.add_argument("--no-tests", action="store_true", help="the simulation only")
    parser.add_argument("--no-simulate", action="store_true", help="the tests only")
    parser.add_argument("--seed", type=int, default=SEED, help="the first of the simulation (default: %(default)s)")
    given = parser.parse_args()
    mutants = [one for one in load() if not one.equivalent and (given.only in one.name or given.only in one.file)]
    mutants = [one for one in mutants if given.group in {one.group, "all"} or given.only]
    if given.list:
        for one in mutants:
            print(f"{one.name}\n    {one.file}\n    {one.wrong}")
        return 0
    unfit = check(mutants)
    if unfit:
        print(*unfit, sep="\n", file=sys.stderr)
        return 2
    missed = 0
    print("| mistake | file | caught by |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutate-") as place:
        minutes = 0.0 if given.no_simulate else given.simulate
        trial = Trial(Tree(Path(place)), not given.no_tests, minutes, given.seed)
        for one in mutants:
            caught = trial.caught_by(one)
            missed += not caught
            file = one.file.removeprefix("pubsub/")
            print(f"| {one.name} | `{file}` | {caught or '**nothing**'} |", flush=True)
    print(f"\n{len(mutants) - missed} of {len(mutants)} were caught", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
