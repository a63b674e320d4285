"""The faults of a round on consumer groups, as `group_rounds.py` lists them: drawn, and carried out."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Final

from tests.faults.alike import compare
from tests.faults.cluster import Process
from tests.faults.group_cast import LIVENESS_SECONDS, SIDES, Cast, Hand
from tests.faults.members import SERVER
from tests.faults.rounds import Rounds as ServerRounds
from tests.faults.rounds import Steps, carry_out, waiting

WEIGHTS: Final = {
    "member killed": 8,
    "member stopped": 4,
    "member closed": 3,
    "scaled": 3,
    "power cut": 1,
    "directory lost": 3,
    "released": 3,
    "server killed": 3,
    "server stopped": 2,
    "primary killed": 3,
    "primary stopped": 2,
    "standby killed": 2,
    "standby lost": 1,
    "switch": 1,
    "proxy killed": 3,
    "proxy stopped": 2,
    "proxy forgets": 1,
    "links cut": 2,
}

MESSAGES: Final = 15
"""Put to each topic before the faults of a round; some more during them."""

POISON: Final = 0.04
"""How likely a message fails at first."""

PATIENCE_SECONDS: Final = 300.0
"""Within which nothing is left of a group after a round."""

LOOK_SECONDS: Final = 0.1
"""Between two looks whether something is left."""


class Rounds:
    """Draws the faults of one cluster, and carries them out.

    Attributes:
        done: how many faults of each kind there were.
        waits: seconds from the end of each round's faults until nothing was left.
    """

    def __init__(self, cast: Cast, rng: Random) -> None:
        self._cast, self._members, self._rng = cast, cast.members, rng
        self._servers = ServerRounds(cast.members, rng)
        self._boots = 0
        self.done: Counter[str] = Counter()
        self.waits: list[float] = []

    def round(self, kinds: list[str] | None = None) -> str:
        """One round; what it was.

        Args:
            kinds: of its faults; None: they are drawn.
        """
        rng, cast = self._rng, self._cast
        drawn = kinds or rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=rng.choice((1, 1, 2, 2, 3)))
        cast.put(MESSAGES, POISON)
        carry_out([getattr(self, f"_{kind.replace(' ', '_')}")() for kind in drawn] + [self._put_meanwhile()])
        self._members.heal()
        began = time.monotonic()
        if not self._settles():
            cast.objections.append(f"stuck after {' + '.join(drawn)}: {cast.facts()}")
        self.waits.append(time.monotonic() - began)
        return " + ".join(drawn)

    def _settles(self) -> bool:
        """Wait until nothing is left, or something is objected to; whether that came to be in time."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if self._cast.settled() or self._cast.objections:
                return True
            time.sleep(LOOK_SECONDS)
        return False

    def _put_meanwhile(self) -> Steps:
        for _ in range(3):
            self._cast.put(MESSAGES // 5, POISON)
            yield 0.1

    @contextmanager
    def _hit(self, kind: str, *processes: Process) -> Iterator[None]:
        """Hold these while a fault has them."""
        self.done[kind] += 1
        names = {process.name for process in processes}
        self._members.busy.update(names)
        try:
            yield
        finally:
            self._members.busy.difference_update(names)

    def _seconds(self, most: float) -> float:
        return self._rng.random() * most

    # Members of groups

    def _hand(self, *sides: str) -> Hand | None:
        busy = self._members.busy
        free = [hand for hand in self._cast.hands if hand.on and hand.name not in busy and hand.side in sides]
        return self._rng.choice(free) if free else None

    def _member_killed(self) -> Steps:
        hand, late, die = self._hand(*SIDES), self._rng.random() < 0.5, self._rng.random() < 0.5
        seconds = self._seconds(2 * LIVENESS_SECONDS)
        yield self._seconds(0.3)
        if hand is None or hand.name in self._members.busy:
            return
        with self._hit("member killed", hand.process):
            hand.process.kill()
            yield seconds if late else 0.0
            self._cast.start(hand, die=die)

    def _member_stopped(self) -> Steps:
        yield self._seconds(0.3)
        hand, seconds = self._hand(*SIDES), self._seconds(2.5 * LIVENESS_SECONDS)
        if hand is None:
            return
        with self._hit("member stopped", hand.process):
            hand.process.pause()
            yield seconds
            hand.process.resume()

    def _member_closed(self) -> Steps:
        hand, seconds = self._hand(*SIDES), self._seconds(0.5)
        if hand is None:
            return
        with self._hit("member closed", hand.process):
            yield from self._cast.finish(hand)
            yield seconds
            self._cast.start(hand)

    def _scaled(self) -> Steps:
        yield 0.0
        side = self._rng.choice(list(SIDES))
        hand = next(hand for hand in self._cast.hands if hand.name == SIDES[side][-1])
        if hand.name in self._members.busy:
            return
        with self._hit("scaled up" if not hand.on else "scaled down", hand.process):
            if hand.on:
                yield from self._cast.finish(hand)
            else:
                self._cast.start(hand)

    def _power_cut(self) -> Steps:
        yield self._seconds(0.3)
        side, busy = self._rng.choice(list(SIDES)), self._members.busy
        hands = [hand for hand in self._cast.hands if hand.side == side and hand.on and hand.name not in busy]
        seconds = self._seconds(LIVENESS_SECONDS)
        self._boots += 1
        with self._hit("power cut", *(hand.process for hand in hands)):
            for hand in hands:
                hand.process.running.kill()
            for hand in hands:
                hand.process.running.wait()
            yield seconds
            for hand in hands:
                self._cast.start(hand, boot=f"boot {self._boots}")

    def _directory_lost(self) -> Steps:
        yield self._seconds(0.3)
        hand, cast = self._hand("open"), self._cast
        first = self._rng.random() < 0.5
        if hand is None:
            return
        with self._hit("directory lost", hand.process):
            hand.process.kill()
            stores = cast.lose(hand)
            if first:
                cast.start(hand)
            yield from self._give_up(hand, stores, lost_disk=True)
            if not first:
                cast.start(hand)

    def _released(self) -> Steps:
        yield self._seconds(0.3)
        hand, kill = self._hand("open"), self._rng.random() < 0.5
        if hand is None:
            return
        with self._hit("released", hand.process):
            hand.process.kill() if kill else hand.process.pause()
            yield from self._give_up(hand, {group.name: "" for group in self._cast.groups}, lost_disk=False)
            self._cast.start(hand) if kill else hand.process.resume()

    def _give_up(self, hand: Hand, stores: dict[str, str], *, lost_disk: bool) -> Steps:
        """An operator's release, in the groups that wait for one."""
        for group in self._cast.groups_of(hand.side):
            store = stores.get(group.name)
            if group.policy != "operator" or store is None:
                continue
            gave_up = yield from waiting(
                lambda group=group, store=store: self._cast.release(group, hand.name, store, lost_disk=lost_disk)
            )
            if not gave_up:
                self._cast.objections.append(f"the claims of {hand.name} in {group.name} cannot be released")

    # Servers and proxies

    def _free(self, processes: list[Process]) -> list[Process]:
        return [process for process in processes if process.name not in self._members.busy]

    def _killed(self, kind: str, process: Process | None) -> Steps:
        late, seconds = self._rng.random() < 0.5, self._seconds(1.5)
        yield self._seconds(0.2)
        if process is None or process.name in self._members.busy:
            return
        with self._hit(kind, process):
            process.kill()
            yield seconds if late else 0.0
            process.start()

    def _stopped(self, kind: str, process: Process | None) -> Steps:
        seconds = self._seconds(2.5)
        yield self._seconds(0.2)
        if process is None or process.name in self._members.busy:
            return
        with self._hit(kind, process):
            process.pause()
            yield seconds
            process.resume()

    def _server_killed(self) -> Steps:
        yield from self._killed("server killed", self._members.cluster.servers[0])

    def _server_stopped(self) -> Steps:
        yield from self._stopped("server stopped", self._members.cluster.servers[0])

    def _pair(self, *, primary: bool) -> Process | None:
        """The member that serves, or the other one; None: nobody can tell."""
        said = self._members.standby().get("member")
        by_role = {self._members.member_id(process) == said: process for process in self._members.members}
        return by_role.get(primary) if said else None

    def _primary_killed(self) -> Steps:
        yield from self._killed("primary killed", self._pair(primary=True))

    def _primary_stopped(self) -> Steps:
        yield from self._stopped("primary stopped", self._pair(primary=True))

    def _standby_killed(self) -> Steps:
        yield from self._killed("standby killed", self._pair(primary=False))

    def _standby_lost(self) -> Steps:
        """The standby's disk is lost; the operator removes that member, and starts another one."""
        members = self._members
        yield self._seconds(0.2)
        lost, primary = self._pair(primary=False), self._pair(primary=True)
        if lost is None or primary is None or lost.name in members.busy or not members.in_sync():
            return
        with self._hit("standby lost", *members.members, *members.cluster.proxies):
            member = members.member_id(lost)
            lost.kill()
            shutil.rmtree(members.data(lost))
            until_dropped = waiting(lambda: members.standby().get("in_sync") == [members.member_id(primary)])
            if not (yield from until_dropped):
                self._cast.objections.append(f"the lost standby stays in sync: {members.standby()}")
            proxies = [word for address in members.routing for word in ("--proxy", address)]
            words = ("server", "remove", SERVER, "--member", member, "--yes", *proxies)
            operator = members.cluster.process(f"remover{self.done['standby lost']}", "-m", "pubsub", *words).start()
            yield from waiting(lambda: operator.running.poll() is not None)
            lost.start("--standby-of", members.between[primary.name].endpoint)
            if not (yield from waiting(members.in_sync)):
                self._cast.objections.append(f"the new standby does not come in sync: {members.standby()}")

    def _switch(self) -> Steps:
        self.done["switch"] += 1
        yield from self._servers.steps("switch")

    def _proxy(self) -> Process | None:
        free = self._free(self._members.cluster.proxies)
        return self._rng.choice(free) if free else None

    def _proxy_killed(self) -> Steps:
        yield from self._killed("proxy killed", self._proxy())

    def _proxy_stopped(self) -> Steps:
        yield from self._stopped("proxy stopped", self._proxy())

    def _proxy_forgets(self) -> Steps:
        self.done["proxy forgets"] += 1
        yield from self._servers.steps("forget")

    def _links_cut(self) -> Steps:
        self.done["links cut"] += 1
        yield from self._servers.steps(self._rng.choice(("between", "proxies")))

    # The end

    def _closed(self, hand: Hand) -> Steps:
        deadline = time.monotonic() + PATIENCE_SECONDS
        for seconds in self._cast.finish(hand):
            if time.monotonic() > deadline:
                self._cast.objections.append(f"{hand.name} does not close: {hand.process.lines('taken')[-1:]}")
                return
            yield seconds

    def finish(self) -> list[str]:
        """Everybody closes, and what all did is judged."""
        cast = self._cast
        if cast.objections:  # What is stuck would not close.
            return cast.objections
        carry_out([self._closed(hand) for hand in cast.hands])
        if not cast.objections:
            cast.objections += [f"{one.kind}: {one.text}" for one in compare(self._members)]
        return cast.objections
