"""A long run on one commit: a file keeps its progress, and docs/reference/simulation-runs.md shows its table.

The progress of a commit is kept under `build/simulation/`, and written again all the time: an interrupted run continues
from there. A tree with uncommitted changes is no commit: its figures are not kept.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.simulation.situations import SITUATIONS

OPERATIONS: Final = 30_000_000
NOT_SIMULATED: Final = ("cli", "gateway", "http", "monitoring", "services", "spark", "web")
"""Rooms of the package that no run imports."""

CODE: Final = ("pubsub", "tests/simulation", *(f":(exclude)pubsub/{room}" for room in NOT_SIMULATED))
"""The files that a run depends on."""


@dataclass
class Range:
    """Seeds that were run one after the other.

    Attributes:
        busy: seconds of a core; wall: on the clock.
        found: the violations, by seed.
    """

    first: int
    seeds: int = 0
    operations: int = 0
    busy: float = 0.0
    wall: float = 0.0
    counters: Counter[str] = field(default_factory=Counter)
    found: dict[int, list[str]] = field(default_factory=dict)

    def add(self, seed: int, violations: list[str], operations: int, counters: dict[str, int], seconds: float) -> None:
        """One more seed was run."""
        self.seeds += 1
        self.operations += operations
        self.busy += seconds
        self.counters.update(counters)
        if violations:
            self.found[seed] = violations


class Night:
    """All that was run of one commit.

    Args:
        commit: its ID.
        dirty: whether the tree has changes that are not in it.
        directory: where the file lies.
    """

    def __init__(self, commit: str, dirty: bool, directory: Path) -> None:
        self.commit, self.dirty = commit, dirty
        self.path = directory / f"{commit[:12]}.json"
        self.ranges: list[Range] = []
        if not dirty and self.path.exists():
            for row in json.loads(self.path.read_text())["ranges"]:
                found = {int(seed): violations for seed, violations in row.pop("found").items()}
                self.ranges.append(Range(**{**row, "counters": Counter(row["counters"]), "found": found}))

    @property
    def operations(self) -> int:
        """How many there were."""
        return sum(part.operations for part in self.ranges)

    @property
    def next_seed(self) -> int | None:
        """The first seed behind the finished ones, None if there are none."""
        return max((part.first + part.seeds for part in self.ranges), default=None)

    def begin(self, first: int) -> Range:
        """A range that begins with this seed."""
        if self.ranges and self.ranges[-1].first + self.ranges[-1].seeds == first:
            return self.ranges[-1]
        self.ranges.append(Range(first))
        return self.ranges[-1]

    def save(self) -> None:
        """Write the progress down, unless it belongs to no commit."""
        if self.dirty:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps({"commit": self.commit, "ranges": [vars(part) for part in self.ranges]}))
        draft.replace(self.path)

    def missing(self) -> list[str]:
        """Situations that never came about."""
        counters = self._counters()
        return [name for name in SITUATIONS if not counters[name]]

    def found(self) -> dict[int, list[str]]:
        """The violations, by seed."""
        return {seed: violations for part in self.ranges for seed, violations in part.found.items()}

    def _counters(self) -> Counter[str]:
        return sum((part.counters for part in self.ranges), Counter())

    def tables(self) -> str:
        """The progress, as docs/reference/simulation-runs.md shows it."""
        counters, found = self._counters(), self.found()
        dirty = ", with changes that are not committed" if self.dirty else ""
        lines = [f"Commit `{self.commit[:12]}`{dirty}.", ""]
        lines += [
            "| seeds | how many | operations | a minute of a core | found something |",
            "|---|---:|---:|---:|---:|",
        ]
        for part in self.ranges:
            lines.append(_row(f"{part.first} to {part.first + part.seeds - 1}", [part], len(part.found)))
        if len(self.ranges) != 1:
            lines.append(_row("in all", self.ranges, len(found)))
        lines += ["", "| situation | times |", "|---|---:|"]
        lines += [f"| {what} | {counters[name]:,} |" for name, what in SITUATIONS.items()]
        faults = {name.removeprefix("fault: "): n for name, n in sorted(counters.items()) if name.startswith("fault: ")}
        lines += ["", "Faults: " + ", ".join(f"{name} {number:,}" for name, number in faults.items()) + "."]
        for seed, violations in sorted(found.items()):
            lines += ["", f"Seed {seed}: " + "; ".join(violations[:3])]
        return "\n".join(lines)


def _row(title: str, parts: Iterable[Range], found: int) -> str:
    parts = list(parts)
    operations, busy = sum(part.operations for part in parts), sum(part.busy for part in parts)
    rate = operations / max(busy, 1e-9) * 60
    return f"| {title} | {sum(part.seeds for part in parts):,} | {operations:,} | {rate:,.0f} | {found} |"


def commit_of(root: Path) -> tuple[str, bool]:
    """The last commit that changed anything a run depends on, and whether the tree has such changes not in it.

    A later commit that changes documents or other tests changes no run. "unknown" where there is no git.
    """
    try:
        commit = _git(root, "log", "-1", "--format=%H", "--", *CODE)
        return commit, bool(_git(root, "status", "--porcelain", "--untracked-files=no", "--", *CODE))
    except (OSError, subprocess.CalledProcessError):
        return "unknown", True


def _git(root: Path, *command: str) -> str:
    return subprocess.run(["git", *command], cwd=root, check=True, capture_output=True, text=True).stdout.strip()
