"""Faults drawn at random against a cast; each ends by itself, some at the same time as others.

    kill        SIGKILL, and started again up to a second later
    forget      a proxy is killed, and started again with an empty directory
    stop        SIGSTOP for up to three times liveness, and SIGCONT
    cut         connections over one relay pass nothing more, and nobody is told
    delay       each chunk takes 50 ms more
    one way     one direction of a relay vanishes
    split       each proxy hears other servers only; a new topic comes to be owned twice, and they hear all again
    move        `pubsub topic move`
    drain       `pubsub server drain`, later with --stop
    full disk   a server's store may not grow far, and a subscriber hoards until puts are refused; then it takes all
    power cut   everybody who is not spared is killed at once; clients come back in another boot of their host

A fault is a generator: it yields how many seconds until it is to go on.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Final

from pubsub.errors import InDoubt, PubsubError
from tests.faults.cast import BULK, SPARED, Cast
from tests.faults.cluster import DEAD_SECONDS, Process
from tests.faults.relay import DOWN, UP, Relay

Steps = Iterator[float]

WEIGHTS: Final = {
    "kill": 6,
    "forget": 1,
    "stop": 4,
    "cut": 2,
    "delay": 2,
    "one way": 2,
    "split": 1,
    "move": 3,
    "drain": 1,
    "full disk": 1,
    "power cut": 1,
}
AT_ONCE: Final = 3
GAP_SECONDS: Final = 4.0
"""At most, from the beginning of one fault to that of the next."""

SPLITS_MAX: Final = 24
"""Each makes a topic, and topics stay."""

DISK_BYTES: Final = 12 << 20
"""How large the disk of a server is that is to become full."""

BULK_MAX: Final = 400
HOARD_SECONDS: Final = 30.0
"""Messages that are put to fill a disk, and for how long."""


class Disorder:
    """Begins faults and carries them on.

    Attributes:
        done: how many of each kind there were.
        outcomes: what came of some: of operators' commands their exit code, of splits whether there were two owners.
    """

    def __init__(self, cast: Cast, rng: Random) -> None:
        self._cast, self._rng = cast, rng
        self._active: list[tuple[float, Steps]] = []
        self._next = time.monotonic() + rng.random() * GAP_SECONDS
        self._operators = 0
        self._splits = 0
        self.done: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()

    def tick(self) -> None:
        """Begin one if it is time, and carry on those whose moment has come."""
        now = time.monotonic()
        if now >= self._next and len(self._active) < AT_ONCE:
            kind = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            self._next = now + self._rng.random() * GAP_SECONDS
            if self._advance(getattr(self, f"_{kind.replace(' ', '_')}")()):
                self.done[kind] += 1
        self._carry_on()

    def finish(self) -> None:
        """Begin no more, and carry on those there are until they have ended; the network heals."""
        while self._active:
            self._carry_on()
            time.sleep(0.02)
        self._cast.net.heal()

    def _carry_on(self) -> None:
        now = time.monotonic()
        due = [steps for at, steps in self._active if at <= now]
        self._active = [item for item in self._active if item[0] > now]
        for steps in due:
            self._advance(steps)

    def _advance(self, steps: Steps) -> bool:
        """One step; whether more are to come."""
        for seconds in steps:
            self._active.append((time.monotonic() + seconds, steps))
            return True
        return False

    # Who

    @contextmanager
    def _hold(self, *names: str) -> Iterator[None]:
        """Nothing else happens to these meanwhile."""
        self._cast.busy.update(names)
        yield
        self._cast.busy.difference_update(names)

    def _free(self, *, spared: bool) -> list[Process]:
        """Those that no fault has hold of, spared ones included or not."""
        busy = self._cast.busy
        return [
            process
            for process in self._cast.processes
            if process.name not in busy and (spared or process.name not in SPARED)
        ]

    def _victim(self, *, spared: bool) -> Process | None:
        """Any role alike, then any of that role."""
        free = self._free(spared=spared)
        cast = self._cast
        roles = [cast.cluster.proxies, cast.cluster.servers, cast.publishers, cast.subscribers]
        left = [few for role in roles if (few := [process for process in role if process in free])]
        return self._rng.choice(self._rng.choice(left)) if left else None

    def _seconds(self, most: float) -> float:
        return self._rng.random() * most

    # Processes

    def _kill(self) -> Steps:
        victim = self._victim(spared=False)
        if victim is None:
            return
        with self._hold(victim.name):
            victim.kill()
            yield self._seconds(2 * DEAD_SECONDS) if self._rng.random() < 0.5 else 0.0
            self._cast.start(victim)

    def _forget(self) -> Steps:
        proxies = [process for process in self._free(spared=False) if process in self._cast.cluster.proxies]
        if not proxies:
            return
        victim = self._rng.choice(proxies)
        with self._hold(victim.name):
            victim.kill()
            # One that was killed while it started may not have made it yet.
            shutil.rmtree(self._cast.cluster.directory / victim.name, ignore_errors=True)
            yield self._seconds(DEAD_SECONDS)
            self._cast.start(victim)

    def _stop(self) -> Steps:
        victim = self._victim(spared=True)
        if victim is None:
            return
        with self._hold(victim.name):
            victim.pause()
            yield self._seconds(3 * DEAD_SECONDS)
            victim.resume()

    def _power_cut(self) -> Steps:
        victims = self._free(spared=False)
        self._rng.shuffle(victims)
        with self._hold(*[victim.name for victim in victims]):
            for victim in victims:
                victim.running.kill()
            for victim in victims:
                victim.running.wait()
            yield self._seconds(2 * DEAD_SECONDS)
            boot = f"{self._rng.getrandbits(64):x}"
            for victim in victims:
                self._cast.start(victim, boot=boot)

    # The network

    def _cut(self) -> Steps:
        for relay in self._relay():
            relay.cut()
            yield self._seconds(3 * DEAD_SECONDS)

    def _delay(self) -> Steps:
        for relay in self._relay():
            relay.delay = 0.05
            yield self._seconds(5 * DEAD_SECONDS)

    def _one_way(self) -> Steps:
        for relay in self._relay():
            relay.silent = {self._rng.choice([UP, DOWN])}
            yield self._seconds(3 * DEAD_SECONDS)

    def _relay(self) -> Iterator[Relay]:
        """One that no fault has hold of, if there is one; it heals afterwards."""
        free = [relay for relay in self._cast.net.relays if relay.endpoint not in self._cast.busy]
        if free:
            relay = self._rng.choice(free)
            with self._hold(relay.endpoint):
                yield relay
                relay.heal()

    def _split(self) -> Steps:
        relays, watch = self._cast.net.servers, self._cast.watch
        if self._splits == SPLITS_MAX or any(relay.endpoint in self._cast.busy for relay in relays):
            return
        self._splits += 1
        names = [server.name for server in self._cast.cluster.servers]
        self._rng.shuffle(names)
        place = self._rng.randrange(1, len(names))
        with self._hold(*[relay.endpoint for relay in relays]):
            relays[0].blocked, relays[1].blocked = set(names[:place]), set(names[place:])
            yield 1.5 * DEAD_SECONDS
            topic = f"split/{self._splits}"
            self._cast.open(topic)
            limit, twice = time.monotonic() + 15.0, False
            while not twice and time.monotonic() < limit:
                yield 0.1
                owners = [watch.holders(proxy).get(topic, []) for proxy in (0, 1)]
                twice = all(owners) and owners[0] != owners[1]
            self.outcomes["split: two owners" if twice else "split: one owner"] += 1
            yield self._seconds(3.0)
            for relay in relays:
                relay.heal()

    # Operators

    def _operate(self, *words: str) -> Iterator[float]:
        """Run a command; it may fail, as it would while things are broken."""
        self._operators += 1
        addresses = [word for address in self._cast.cluster.addresses for word in ("--proxy", address)]
        if self._cast.cluster.keys is not None:
            addresses += ["--key", str(self._cast.cluster.keys.client)]
            addresses += [word for key in self._cast.cluster.proxy_keys() for word in ("--proxy-key", key)]
        process = self._cast.cluster.process(f"operator{self._operators}", "-m", "pubsub", *words, *addresses)
        process.start()
        while process.running.poll() is None:
            yield 0.1
        self.outcomes[f"{words[1]}: exit code {process.running.returncode}"] += 1

    def _move(self) -> Steps:
        to = self._rng.choice(self._cast.cluster.servers).name
        topic = self._rng.choice([*self._cast.topics, BULK])
        yield from self._operate("topic", "move", topic, "--to", to, "--wait", "20", "--yes")

    def _drain(self) -> Steps:
        if "drain" in self._cast.busy:
            return
        name = self._rng.choice(self._cast.cluster.servers).name
        with self._hold("drain"):
            yield from self._operate("server", "drain", name, "--wait", "5", "--yes")
            yield self._seconds(2.0)
            before = self.outcomes["drain: exit code 0"]
            while self.outcomes["drain: exit code 0"] == before:
                yield from self._operate("server", "drain", name, "--stop", "--wait", "5", "--yes")

    # The disk

    def _full_disk(self) -> Steps:
        owner = self._owner(BULK)
        if owner is None:
            return
        with self._hold(owner.name):
            owner.kill()
            self._cast.start(owner, "--store-bytes-max", str(DISK_BYTES))
            hoard = threading.Thread(target=self._hoard, daemon=True)
            hoard.start()
            while hoard.is_alive():
                yield 0.1
            if owner.running.poll() is not None:
                self._cast.died(owner)
            else:
                owner.kill()
            self._cast.start(owner)

    def _owner(self, topic: str) -> Process | None:
        """Who holds it, if one may be killed."""
        names = self._cast.watch.holders(0).get(topic, [])
        return next((process for process in self._free(spared=False) if process.name in names), None)

    def _hoard(self) -> None:
        """Put until it is refused, then take all of it."""
        filler, hoarder = self._cast.filler, self._cast.hoarder
        refused, limit = False, time.monotonic() + HOARD_SECONDS
        for _ in range(BULK_MAX):
            try:
                filler.put(BULK, timeout=2.0)
            except InDoubt as error:
                refused = "disk" in error.reason
            if refused or time.monotonic() > limit:
                break
        self.outcomes["full disk: puts refused" if refused else "full disk: puts taken"] += 1
        idle = 0
        while idle < 3:
            took = 0
            with suppress(PubsubError):
                took = hoarder.process(BULK, 1.0)
            idle = 0 if took else idle + 1
        with suppress(PubsubError):
            filler.flush(5.0)
