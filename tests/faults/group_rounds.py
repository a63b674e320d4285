"""Rounds of faults on consumer groups: `python -m tests.faults.group_rounds --rounds 1000 --seed 1`.

    member killed      SIGKILL, and a start at once or later; the new process may die at a step of its own
    member stopped     SIGSTOP for longer than the liveness of members or not, and SIGCONT
    member closed      it closes its client, and starts again
    scaled             the third member of a side comes, or goes
    power cut          all members of a side are killed, and start in another boot of their host
    directory lost     an open group's member is killed, and starts with an empty directory; its claims are given up
    released           an operator gives up the claims of a member that is stopped or killed, which then goes on
    server killed, server stopped      the plain server: puts go to the other one meanwhile, and their topics merge
    primary killed, primary stopped    a failover
    standby killed, standby lost       the other member; or its disk, and it is made anew
    switch                             `pubsub server switch`
    proxy killed, proxy stopped, proxy forgets
    links cut                          between the members of a pair, or of one to proxies

A round puts messages, of which some fail or kill their process, and has one to three faults at a time. Then all heals,
and soon nothing of any group may be left. A cluster lives for some rounds. In the end every member closes its client,
and an auditor that shares no code with the product judges their databases (`group_audit.py`); both members of the
server with a standby must have the same.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from tests.faults.forkserver import forking
from tests.faults.group_audit import Audit, audit
from tests.faults.group_cast import Cast
from tests.faults.group_faults import Rounds

EACH: Final = 25
"""Rounds of one cluster."""


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

    def add(self, rounds: Rounds, cast: Cast, found: Audit) -> None:
        """The end of a cluster."""
        self.faults += rounds.done
        self.deaths += cast.deaths
        self.waits += rounds.waits
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


def run_cluster(
    directory: Path, seed: str, count: int, told: Told, say: Callable[[str], None], kinds: list[list[str]] | None = None
) -> None:
    """So many rounds of one cluster.

    Args:
        seed: all is drawn from it.
        kinds: of the faults of each round; None: they are drawn.
    """
    rng = Random(seed)
    with Cast(directory, rng) as cast:
        rounds = Rounds(cast, rng)
        for number in range(count):
            what = rounds.round(kinds[number] if kinds is not None else None)
            told.rounds += 1
            say(f"round {told.rounds:5}  seed {seed}.{number + 1}  {what:<40} all done after {rounds.waits[-1]:5.2f} s")
            if cast.objections or told.over:
                break
        told.objections += rounds.finish()
        for client in cast.members.cluster.clients:
            with suppress(Exception):
                client.close()
    told.add(rounds, cast, audit(directory))


def main() -> int:
    """Runs them; exit code 1 where something was not as it was promised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=EACH, help="rounds of one cluster")
    parser.add_argument("--first", type=int, default=1, help="number of the first cluster of this seed")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no round after so many")
    parser.add_argument("--dir", type=Path, help="where everything lives; else among temporary files")
    asked = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="group-rounds-", dir=asked.dir))
    print(f"files: {home}; kept where something is not as it was promised", flush=True)
    told, number = Told(time.monotonic() + asked.minutes * 60), asked.first
    signal.signal(signal.SIGTERM, lambda *_: told.end())
    began = time.monotonic()
    with forking():
        while told.rounds < asked.rounds and not told.objections and not told.over:
            directory = home / f"{asked.seed}-{number}"
            directory.mkdir()
            count = min(asked.each, asked.rounds - told.rounds)
            run_cluster(directory, f"{asked.seed}-{number}", count, told, lambda line: print(line, flush=True))
            if not told.objections:
                shutil.rmtree(directory)
            number += 1
    print(f"seed {asked.seed}, clusters {asked.first} to {number - 1}, {time.monotonic() - began:.0f} s")
    told.show()
    return 1 if told.objections else 0


if __name__ == "__main__":
    sys.exit(main())
