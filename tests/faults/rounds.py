"""Rounds of faults on a server with two members, drawn from a seed; each fault ends, and traffic continues after it.

    kill        SIGKILL of a member, a proxy, the other server or a client, started again up to a second later
    stop        SIGSTOP of a member or a proxy for up to three times liveness, and SIGCONT
    between     the link between the members: one direction is silent, or both
    proxies     the links of one member to one, two or all proxies: one direction is silent, or both
    forget      a proxy is killed, and started again with an empty directory
    full disk   a member's disk is full for a while (where no disk can be mounted: its store may not grow)
    switch      `pubsub server switch`
    power cut   all that are not spared are killed at once; clients come back in another boot of their host

A round is one of them, or two at the same time; each kind comes once before it is left to chance. After it all is
healed, and every client must get on. A fault is a generator: it yields how many seconds until it is to go on.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Final

from tests.faults.cluster import LIVENESS, Process, until
from tests.faults.members import BALLAST, SERVER, SPARED, Members
from tests.faults.relay import DOWN, UP, Relay

Steps = Iterator[float]

WEIGHTS: Final = {
    "kill": 6,
    "stop": 4,
    "between": 4,
    "proxies": 4,
    "forget": 1,
    "full disk": 2,
    "switch": 2,
    "power cut": 1,
}
TWICE: Final = 0.4
"""How often a round is two faults."""

PATIENCE_SECONDS: Final = 120.0
"""Within which everybody gets on after a round."""

SMALL_STORE: Final = 8 << 20


def carry_out(faults: Iterable[Steps]) -> None:
    """Go on with each of them when its time has come, until all have ended."""
    active = [(0.0, steps) for steps in faults]
    while active:
        active.sort(key=lambda item: item[0])
        at, steps = active.pop(0)
        while time.monotonic() < at:
            time.sleep(0.005)
        for seconds in steps:
            active.append((time.monotonic() + seconds, steps))
            break


def waiting(condition: Callable[[], bool], patience: float = PATIENCE_SECONDS) -> Generator[float, None, bool]:
    """A part of a fault that waits for something while the others go on; whether it came to be in time."""
    deadline = time.monotonic() + patience
    while not (so := condition()) and time.monotonic() < deadline:
        yield 0.05
    return so


class Rounds:
    """Draws faults, and carries them out.

    Args:
        members: their processes.
        rng: the source of draws.

    Attributes:
        done: how many faults of each kind there were.
        outcomes: of operators' commands, their exit codes.
        waits: seconds from the end of each round's faults until every client got on.
    """

    def __init__(self, members: Members, rng: Random) -> None:
        self._members, self._rng = members, rng
        self._dead = LIVENESS * members.heartbeat
        self._first = rng.sample(list(WEIGHTS), len(WEIGHTS))
        self._operators = 0
        self.done: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.waits: list[float] = []

    def round(self) -> str:
        """Run one round, and return its name. A client that does not get on afterwards is objected to."""
        rng, members = self._rng, self._members
        kinds = self._draw(2 if rng.random() < TWICE else 1)
        self.done.update(kinds)
        carry_out([self.steps(kind) for kind in kinds])
        members.heal()
        members.look_after()
        self._wait_for_all()
        return " + ".join(kinds)

    def steps(self, kind: str) -> Steps:
        """The fault of a kind, to be carried out."""
        found: Steps = getattr(self, f"_{kind.replace(' ', '_')}")()
        return found

    def _draw(self, count: int) -> list[str]:
        kinds = [self._first.pop() for _ in range(min(count, len(self._first)))]
        return kinds + self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count - len(kinds))

    def _wait_for_all(self) -> None:
        members, began = self._members, time.monotonic()
        before = members.progress()

        def on() -> bool:
            members.look_after()
            now = members.progress()
            return all(now[name] > count for name, count in before.items())

        try:
            until(on, "everybody gets on", PATIENCE_SECONDS)
        except AssertionError:
            now = members.progress()
            stuck = sorted(name for name, count in before.items() if now[name] <= count)
            members.object_to("stuck", f"{', '.join(stuck)} after {PATIENCE_SECONDS:g} s: {members.standby()}")
        self.waits.append(time.monotonic() - began)

    # Who

    @contextmanager
    def _hold(self, *names: str) -> Iterator[None]:
        self._members.busy.update(names)
        yield
        self._members.busy.difference_update(names)

    def _free(self, processes: list[Process]) -> list[Process]:
        busy = self._members.busy | SPARED
        return [process for process in processes if process.name not in busy]

    def _victim(self) -> Process | None:
        """A member half of the time, else anybody."""
        free = self._free(self._members.members)
        if not free or self._rng.random() < 0.5:
            free = self._free(self._members.processes)
        return self._rng.choice(free) if free else None

    def _seconds(self, most: float) -> float:
        return self._rng.random() * most

    # Processes

    def _kill(self) -> Steps:
        victim, late = self._victim(), self._rng.random() < 0.5
        seconds = self._seconds(2 * self._dead)
        if victim is None:
            return
        with self._hold(victim.name):
            victim.kill()
            yield seconds if late else 0.0
            self._members.start(victim)

    def _stop(self) -> Steps:
        members = self._members
        free = self._free([*members.members, *members.members, *members.cluster.proxies])
        seconds = self._seconds(3 * self._dead)
        if not free:
            return
        victim = self._rng.choice(free)
        with self._hold(victim.name):
            victim.pause()
            yield seconds
            victim.resume()

    def _forget(self) -> Steps:
        proxies = self._free(self._members.cluster.proxies)
        seconds = self._seconds(self._dead)
        # One at a time: nobody can tell two of three the views that they have forgotten.
        if len(proxies) < len(self._members.cluster.proxies):
            return
        victim = self._rng.choice(proxies)
        with self._hold(*(proxy.name for proxy in proxies)):
            victim.kill()
            shutil.rmtree(self._members.directory / victim.name, ignore_errors=True)
            yield seconds
            self._members.start(victim)
            victim.ready()
            # While the members are cut off from each other, by the other fault of the round, it gets no vote.
            if not (yield from waiting(self._all_vote)):
                self._members.object_to("stuck", f"not every proxy votes again: {self._members.standby()}")

    def _all_vote(self) -> bool:
        votes = self._members.standby().get("votes", {})
        return len(votes) == len(self._members.links) and set(votes.values()) == {"told"}

    def _power_cut(self) -> Steps:
        victims = self._free(self._members.processes)
        self._rng.shuffle(victims)
        seconds = self._seconds(2 * self._dead)
        boot = f"{self._rng.getrandbits(64):x}"
        with self._hold(*[victim.name for victim in victims]):
            for victim in victims:
                victim.running.kill()
            for victim in victims:
                victim.running.wait()
            yield seconds
            for victim in victims:
                self._members.start(victim, boot=boot)

    # The network

    def _directions(self) -> set[str]:
        return self._rng.choice([{UP}, {DOWN}, {UP, DOWN}])

    def _between(self) -> Steps:
        relay: Relay = self._rng.choice(list(self._members.between.values()))
        ways, seconds = self._directions(), self._seconds(3 * self._dead)
        relay.silent = ways
        yield seconds
        relay.heal()

    def _proxies(self) -> Steps:
        members, rng = self._members, self._rng
        name = rng.choice(members.members).name
        relays = rng.sample(members.links, rng.randint(1, len(members.links)))
        ways, seconds = self._directions(), self._seconds(3 * self._dead)
        for relay in relays:
            relay.apart[name] = ways
        yield seconds
        for relay in relays:
            relay.heal()

    # The disk, and operators

    def _full_disk(self) -> Steps:
        members = self._members
        free = self._free(members.members)
        seconds = self._seconds(3 * self._dead)
        if not free:
            return
        victim = self._rng.choice(free)
        with self._hold(victim.name), ExitStack() as stack:
            if members.mounted(victim):
                stack.callback((members.directory / victim.name / BALLAST).unlink, missing_ok=True)
                members.fill(victim)
                yield seconds
                if victim.running.poll() is not None:
                    members.object_to(
                        "died", f"{victim.name} when its disk was full: {victim.errors.read_text()[-300:]}"
                    )
                    members.start(victim)
                return
            victim.kill()
            victim.start("--store-bytes-max", str(SMALL_STORE))
            yield seconds
            victim.kill()
            victim.start()

    def _switch(self) -> Steps:
        self._operators += 1
        addresses = [word for address in self._members.routing for word in ("--proxy", address)]
        words = ("server", "switch", SERVER, "--wait", "20", *addresses)
        process = self._members.cluster.process(f"operator{self._operators}", "-m", "pubsub", *words)
        process.start()
        while process.running.poll() is None:
            yield 0.05
        self.outcomes[f"switch: exit code {process.running.returncode}"] += 1
