"""Count and print what rounds of faults on consumer groups did and found."""

from __future__ import annotations

import time
from collections import Counter

from tests.faults.group_audit import Audit
from tests.faults.group_cast import Cast


class Told:
    """What is told of all clusters.

    Args:
        deadline: no round begins after it (monotonic seconds).
    """

    def __init__(self, deadline: float = float("inf")) -> None:
        self._deadline = deadline
        self.rounds, self.objections = 0, list[str]()
        self.faults: Counter[str] = Counter()
        self.deaths: Counter[str] = Counter()
        self.figures: Counter[str] = Counter()
        self.takeovers = 0
        self.waits: list[float] = []

    @property
    def over(self) -> bool:
        """Whether no further round begins."""
        return time.monotonic() >= self._deadline

    def end(self) -> None:
        """Begin no further round."""
        self._deadline = 0.0

    def add(self, done: Counter[str], waits: list[float], cast: Cast, found: Audit) -> None:
        """The end of a cluster.

        Args:
            done: its faults by kind.
            waits: seconds until all was done, by round.
            cast: its processes.
            found: the judgement on their databases.
        """
        self.faults += done
        self.deaths += cast.deaths
        self.waits += waits
        self.takeovers += cast.members.takeovers()
        self.objections += [f"{one.kind}: {one.text}" for one in found.objections]
        for name, counts in found.figures.items():
            for what, count in counts.items():
                self.figures[f"{what} of {name.split('-')[0]} groups"] += count
        self.figures["redriven groups"] += sum(group.redriven for group in cast.groups)

    def show(self) -> None:
        """Prints it."""

        def line(what: str, counts: Counter[str]) -> None:
            print(f"{what:<11} " + ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())))

        print(f"{self.rounds} rounds, {self.faults.total()} faults, {self.takeovers} takeovers")
        line("faults", self.faults)
        line("deaths", self.deaths)
        line("figures", self.figures)
        waits = sorted(self.waits)
        print(f"all done    median {waits[len(waits) // 2]:.2f} s, worst {waits[-1]:.2f} s after a round")
        print(f"objections  {len(self.objections)}", *self.objections[:20], sep="\n", flush=True)
