"""The model's world with the shipped acceptor and proposer in the place of the model's own.

Network, faults, clients and checks are the model's; so are a member's acts as primary and as standby. The ballots are
the shipped code. Messages go through the codec, and a tick is a second. A proxy's rows are on its disk before its vote
is sent. The wall clocks of the members differ, and jump when a member starts.

In some runs the register is not founded yet: A is alone, and B is its first standby. In some, a member out of sync
loses its disk permanently, and another one replaces it: the operator removes the lost one by its ID.
"""

from __future__ import annotations

from random import Random
from typing import Any

from pubsub.protocol import decode, encode
from pubsub.protocol.register import Accept, Forget, View, Vote
from pubsub.proxy.register import Registers
from pubsub.proxy.remembered import RegisterRow, RouteChanges
from pubsub.server.standby.election.acceptor_recovery import AcceptorRecovery, Founding
from pubsub.server.standby.election.proposer import Chosen, Deposed, Ended, Identity, Outcome, Proposer
from tests.standby.model.member import Member
from tests.standby.model.proxies import Proxy
from tests.standby.model.rules import BEAT, OTHER, PATIENCE, Accepted, Rules, Value
from tests.standby.model.world import World

STORE = "5" * 16
IDS = {"A": "a" * 16, "B": "b" * 16}
"""Of the first members of each name; a replacement has another ID."""


def address(name: str) -> str:
    return f"tcp://{name.lower()}:1"


def view_of(value: Value) -> View:
    _, term, primary, in_sync = value
    return View(term, IDS[primary], address(primary), tuple(IDS.values()), tuple(IDS[name] for name in in_sync))


def travelled(message: Any) -> Any:
    return decode(*encode(message))


class ShippedProxy(Proxy):
    """A proxy whose register is `pubsub.proxy.register`."""

    def found(self, value: Value) -> None:
        self.disk = {} if self.world.fresh else {STORE: RegisterRow(STORE, 0, 0, view_of(value))}

    def lose_disk(self) -> None:
        super().lose_disk()
        self.disk = {}

    @property
    def new(self) -> bool:
        return STORE not in self.disk

    @new.setter
    def new(self, new: bool) -> None:
        """The model's flag: here it is whether there is a row."""

    def said(self) -> Accepted | None:
        row = self.disk.get(STORE)
        if row is None or row.view is None:
            return None
        names, view = self.world.names, row.view
        return row.ballot, (row.ballot, view.term, "".join(names(view.primary)), names(*view.in_sync))

    def start(self, first: bool = False) -> None:
        if not self.up and self.life < 1000:
            self.changes = RouteChanges()
            identity = f"{self.name[1:]}{self.identity:015x}"
            self.registers = Registers(self.name, identity, self.disk.values(), self.changes, PATIENCE)
        super().start(first)

    def on_register(self, source: str, message: Any) -> None:
        vote = self.registers.handle(travelled(message), self.world.now)
        self.disk.update(self.changes.registers)
        self.changes.clear()
        self.send(source, "vote", vote)

    def on_beat(self, source: str, term: int) -> None:
        super().on_beat(source, term)
        self.registers.received(STORE, self.world.ids[source], term, self.world.now)

    def on_announce(self, source: str, term: int, change: int, holds: bool) -> None:
        super().on_announce(source, term, change, holds)
        self.registers.received(STORE, self.world.ids[source], term, self.world.now)


class ShippedMember(Member):
    """A member whose ballots are those of `pubsub.server.standby`."""

    registered = False
    """On its disk: whether the register is founded."""

    def start_ballots(self, first: bool) -> None:
        world, identity = self.world, Identity("s1", STORE, self.world.ids[self.name], address(self.name))
        proxies = [proxy.name for proxy in world.proxies]
        self.proposer = Proposer(identity, proxies, BEAT, PATIENCE, world.random)
        self.acceptor_recovery = AcceptorRecovery(self.proposer, world.random)
        self.founding: Founding | None = None
        self.clock = 1000 + world.random.choice((0, 0, 7, 40, 300))
        self.joiners: set[str] = set()
        self.ignored: set[str] = set()
        if first and not world.fresh:
            self.registered = True
            self.proposer.view, self.proposer.unsettled = view_of((0, 1, "A", ("A", "B"))), False

    def take_part(self, first: bool) -> None:
        if self.name != "A" or self.registered:
            super().take_part(first)
            return
        term = max(self.world.now + self.clock, self.floor() + 1)
        self.founding = Founding(self.proposer, term, self.world.random)
        self.activate(term, ("A",))

    # The model's questions to ballots

    @property
    def attempt(self) -> Any:
        return self.proposer.attempt

    @attempt.setter
    def attempt(self, none: None) -> None:
        self.proposer.cancel(self.world.now)

    @property
    def unsettled(self) -> bool:
        return self.proposer.unsettled

    @property
    def required(self) -> set[str]:
        """The members that the primary waits for: the ones that may be in sync, and joining ones."""
        return ({*self.world.names(*self.proposer.required)} | self.joiners) - self.ignored

    @required.setter
    def required(self, names: set[str]) -> None:
        self.joiners, self.ignored = set(), set()

    def require(self, name: str) -> None:
        self.joiners.add(name)
        self.ignored.discard(name)

    def unrequire(self, name: str) -> None:
        self.joiners.discard(name)
        if not self.world.rules["chosen"]:
            self.ignored.add(name)

    def may_begin(self, kind: str) -> bool:
        return self.proposer.may_begin(kind, self.world.now)

    def may_join(self) -> bool:
        return not self.attempt and self.founding is None and not self.world.removed

    def begin(self, kind: str) -> None:
        now, other = self.world.now, self.world.ids[OTHER[self.name]]
        self.proposer.begin(kind, now, now + self.clock, term=self.term, other=other)
        self.flush()

    def expire(self) -> None:
        self.hear(self.proposer.poll(self.world.now))

    def watch(self) -> None:
        view, removed = self.proposer.view, self.world.removed
        if self.founding is not None:
            self.founding.look()
            if self.founding.done and not self.attempt:
                self.begin("bootstrap")
        else:
            self.acceptor_recovery.look()
        if removed and view is not None and removed not in view.members:
            self.world.removed = ""
        elif removed and view is not None and view.in_sync == (self.proposer.identity.member,) and not self.attempt:
            self.begin("remove")
        self.flush()

    def step_down(self) -> None:
        self.acceptor_recovery.end()
        super().step_down()

    # Messages

    def flush(self) -> None:
        world, outgoing = self.world, list(self.proposer.outgoing)
        self.proposer.outgoing.clear()
        accepts = any(isinstance(message, Accept) for _, message in outgoing)
        if accepts and not world.calm and world.random.random() < world.halves:  # It dies in the middle of this.
            some = world.random.sample(world.proxies, world.random.randrange(len(world.proxies)))
            outgoing = [one for one in outgoing if one[0] in {proxy.name for proxy in some}]
            world.at(world.now, world.crash, self, True)
        for target, message in outgoing:
            if isinstance(message, Forget):
                for name in world.names(target):
                    self.send(name, "forget", message)
            else:
                self.send(target, "register", message)

    def on_vote(self, source: str, message: Vote) -> None:
        vote, attempt = travelled(message), self.attempt
        if attempt and attempt.kind == "handover" and attempt.view is None and self.tail() != self.handed:
            self.proposer.cancel(self.world.now)
        self.hear(self.proposer.receive(source, vote, self.world.now))
        if self.founding is not None:
            self.founding.receive(source, vote)
        elif self.role == "primary":
            self.acceptor_recovery.receive(source, vote, self.world.now)
        self.flush()

    def on_forget(self, source: str, message: Forget) -> None:  # type: ignore[override]
        asked = travelled(message)
        if asked.done:
            self.acceptor_recovery.forgotten(asked)
        else:
            self.proposer.forget(asked.identity, self.world.now)
            self.send(source, "forget", Forget("s1", STORE, self.proposer.identity.member, asked.identity, done=1))
        self.flush()

    def on_here(self, source: str, identity: int) -> None:
        """A proxy of the model says so itself; a shipped one is asked."""

    def hear(self, outcome: Outcome | None) -> None:
        match outcome:
            case Chosen(kind, view):
                self.chosen(kind, view)
            case Deposed():
                self.step_down()
            case Ended("add_to_sync", _):
                # A proposed member is required as long as its view may have been chosen; an unproposed one joins anew.
                self.joiners.clear()
                self.catch_up = None

    def chosen(self, kind: str, view: View) -> None:
        in_sync = self.world.names(*view.in_sync)
        self.world.say(self.name, "has chosen", kind, view.term, in_sync)
        if kind in ("takeover", "resume", "handover"):
            self.registered = True
            if self.role != "primary":
                self.activate(view.term, in_sync)
        elif self.role == "primary" and view.term == self.term:
            self.registered, self.founding = True, None
            self.in_sync, self.required, self.catch_up = in_sync, set(in_sync), None
            self.release()


class ShippedWorld(World):
    """One run with the shipped register.

    Attributes:
        fresh: whether the register is not founded yet when the run begins.
        ids: of the members that have the two names now.
        removed: the ID of a lost member that must still be removed.
    """

    proxy_class = ShippedProxy
    member_class = ShippedMember

    def __init__(self, seed: int, rules: Rules, trace: bool = False) -> None:
        self.fresh = Random(-seed - 1).random() < 0.15
        self.ids, self.removed, self.replaced = dict(IDS), "", 0
        super().__init__(seed, rules, trace)
        self.stats["founded late"] += self.fresh

    def names(self, *members: str) -> tuple[str, ...]:
        """The names of these members, without those that were replaced."""
        return tuple(name for name, member in self.ids.items() if member in members)

    def enough_vote(self, live: list[Proxy]) -> bool:
        return super().enough_vote(live) or not self.nodes["A"].registered

    def disturb(self) -> None:
        if self.random.random() < 0.06:
            self.replace()
        super().disturb()

    def replace(self) -> None:
        """A member that was dropped loses its disk for good, and another one takes its place."""
        for member in self.members:
            primary = self.nodes[OTHER[member.name]]
            alone = primary.up and primary.role == "primary" and set(primary.required) == {primary.name}
            if alone and primary.registered and primary.proposer.view and not self.removed and not primary.unsettled:
                self.crash(member, True)
                self.removed, self.replaced = self.ids[member.name], self.replaced + 1
                self.ids[member.name] = f"{self.replaced:016x}"
                member.history, member.saved, member.applied = [], 0, 0
                self.stats["replaced"] += 1
                self.say(member.name, "is replaced")
                return
