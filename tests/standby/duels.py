"""Ballots alone: members and proxies with the real register, and nothing else, in a network with many faults.

Many more ballots meet here than in the model's world, where a primary has other work. Messages are delivered in any
order, lost and doubled. Members restart, with clocks that go back; proxies restart, and lose their disks one at a time.
The checked property is that of Paxos: each proposed view was derived from another one, its parent. Of any two chosen
views one is an ancestor of the other.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from pubsub.protocol.register import Forget, View, Vote
from pubsub.proxy.register import Registers
from pubsub.proxy.remembered import RegisterRow, RouteChanges
from pubsub.server.standby.election.acceptor_recovery import AcceptorRecovery
from pubsub.server.standby.election.proposer import Attempt, Chosen, Deposed, Identity, Outcome, Proposer

STORE = "5" * 16
MEMBERS = ("a" * 16, "b" * 16)
FIRST = View(1, MEMBERS[0], "tcp://a:1", MEMBERS, MEMBERS)
STEPS = 400


class Duel:
    """One run.

    Args:
        seed: the only input.

    Attributes:
        objections: the violations.
        counts: number of each event.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.proxies = [f"p{number}" for number in range(self.random.choice((1, 2, 3, 3, 3, 4, 5)))]
        self.disks = {name: {STORE: RegisterRow(STORE, 0, 0, FIRST)} for name in self.proxies}
        self.lives = dict.fromkeys(self.proxies, 0)
        self.under_way: list[tuple[str, str, Any]] = []
        self.loss = self.random.choice((0.0, 0.1, 0.3))
        self.hurry = self.random.choice((0.2, 0.5, 0.8))
        self.pace = self.random.choice((0.2, 0.02))
        self.patient = self.random.choice((0.0, 0.9))
        self.looks = self.random.choice((0.5, 0.9))
        self.views: dict[int, View] = {}
        self.parents: dict[int, list[int]] = {}
        self.chosen: list[int] = []
        self.objections: list[str] = []
        self.counts: Counter[str] = Counter()
        self.registers: dict[str, Registers] = {}
        self.proposers: dict[str, Watched] = {}
        self.readmissions: dict[str, AcceptorRecovery] = {}
        self.terms: dict[str, int] = {}
        for name in self.proxies:
            self.start_proxy(name)
        for member in MEMBERS:
            self.start_member(member)

    def start_proxy(self, name: str) -> None:
        identity = f"{int(name[1:]):08x}{self.lives[name]:08x}"
        rows = list(self.disks[name].values())
        self.registers[name] = Registers(name, identity, rows, RouteChanges(), patience=3.0)

    def start_member(self, member: str) -> None:
        """It remembers nothing; if the register names it primary it will find out."""
        identity = Identity("s1", STORE, member, f"tcp://{member[0]}:1")
        self.proposers[member] = proposer = Watched(identity, self.proxies, 1.0, 3.0, self.random)
        proposer.duel = self
        self.readmissions[member] = AcceptorRecovery(proposer, self.random)
        self.terms[member] = 0
        self.begin(member, "resume")

    # Steps

    def run(self) -> Duel:
        for _ in range(STEPS):
            self.step()
            if self.objections:
                break
        self.counts["chosen"] += len(self.chosen)
        return self

    def step(self) -> None:
        self.now += self.random.random() * self.pace
        if self.under_way and self.random.random() < 0.9:
            self.deliver()
            return
        chance, member = self.random.random(), self.random.choice(MEMBERS)
        if chance < self.hurry:
            self.try_something(member)
        elif chance < 0.9:
            self.heed(member, self.proposers[member].poll(self.now))
        elif chance < 0.94:
            self.start_member(member)
        elif chance < 0.97:
            self.start_proxy(self.random.choice(self.proxies))
        else:
            self.lose_disk(self.random.choice(self.proxies))

    def try_something(self, member: str) -> None:
        if self.terms[member] and self.random.random() < self.looks:
            self.readmissions[member].look()
            self.flush(member)
        elif self.proposers[member].attempt is not None and self.random.random() < self.patient:
            return
        elif not self.terms[member]:
            self.begin(member, self.random.choice(("takeover", "resume", "handover")))
        else:
            self.begin(member, self.random.choice(("remove_from_sync", "add_to_sync")))

    def begin(self, member: str, kind: str) -> None:
        other = MEMBERS[1 - MEMBERS.index(member)]
        wall = int(self.now) + self.random.choice((0, 0, 3, 10))
        self.proposers[member].begin(kind, self.now, wall, term=self.terms[member], other=other)
        self.flush(member)

    def lose_disk(self, name: str) -> None:
        if all(self.disks.values()) and len(self.proxies) > 1:
            self.disks[name] = {}
            self.lives[name] += 1
            self.start_proxy(name)
            self.counts["lost"] += 1

    # Messages

    def flush(self, member: str) -> None:
        proposer = self.proposers[member]
        for target, message in proposer.outgoing:
            self.under_way.append((member, target, message))
        proposer.outgoing.clear()

    def deliver(self) -> None:
        place = self.random.randrange(len(self.under_way))
        source, target, message = self.under_way[place]
        if self.random.random() > self.loss / 2:
            self.under_way.pop(place)  # Else it comes once more.
        if self.random.random() < self.loss:
            return
        if target in self.registers:
            registers, disk = self.registers[target], self.disks[target]
            was_new = not disk
            vote = registers.handle(message, self.now)
            disk.update(registers._changes.registers)
            registers._changes.clear()
            self.counts["readmitted"] += was_new and bool(disk)
            self.under_way.append((target, source, vote))
        elif isinstance(message, Vote):
            outcome = self.proposers[target].receive(source, message, self.now)
            self.heed(target, outcome)
            if self.terms[target]:
                self.readmissions[target].receive(source, message, self.now)
            self.flush(target)
        elif isinstance(message, Forget):
            self.forget(target, source, message)

    def forget(self, member: str, source: str, message: Forget) -> None:
        if message.done:
            self.readmissions[member].forgotten(message)
            self.flush(member)
        else:
            self.proposers[member].forget(message.identity, self.now)
            answer = Forget("s1", STORE, member, message.identity, done=1)
            self.under_way.append((member, source, answer))

    def heed(self, member: str, outcome: Outcome | None) -> None:
        match outcome:
            case Chosen(kind, view):
                self.counts[kind] += 1
                self.terms[member] = view.term
            case Deposed():
                self.terms[member] = 0
                self.readmissions[member].end()

    # The checks

    def proposed(self, attempt: Attempt, view: View, current: View) -> None:
        """A view is sent, derived from the view in force as far as the proposer can know."""
        ballot = attempt.ballot
        if self.views.setdefault(ballot, view) != view:
            self.objections.append("two views under one ballot")
        if attempt.kind in ("takeover", "handover") and view.primary not in current.in_sync:
            self.objections.append("not eligible")
        said = [one for one in attempt.said() if one is not None]
        self.parents[ballot] = [other for other, accepted in said if accepted == current]

    def known(self, ballot: int) -> None:
        """A view was chosen, and its member knows it."""
        for other in self.chosen:
            if min(other, ballot) not in self.ancestors(max(other, ballot)):
                self.objections.append("a chosen view was passed over")
        self.chosen.append(ballot)

    def ancestors(self, ballot: int) -> set[int]:
        seen, todo = set(), [ballot]
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                todo += self.parents.get(one, [])
        return seen


class Watched(Proposer):
    """A proposer that reports the parent of each view, and each chosen view."""

    duel: Duel
    current: View

    def _wanted(self, attempt: Attempt, current: View, ballot: int) -> View | None:
        self.current = current
        return super()._wanted(attempt, current, ballot)

    def _accept(self, attempt: Attempt, view: View) -> None:
        self.duel.proposed(attempt, view, self.current)
        super()._accept(attempt, view)

    def _accepted(self, attempt: Attempt, proxy: str, vote: Vote, now: float) -> Outcome | None:
        outcome = super()._accepted(attempt, proxy, vote, now)
        if isinstance(outcome, Chosen):
            self.duel.known(attempt.ballot)
        return outcome
