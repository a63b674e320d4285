"""Two members of one server on a network, disks and a register that fail: the shipped cores, all else in a few lines.

Messages are lost, late, doubled and overtake each other; links are cut in one direction or both; members are killed,
and lose power and what was not synced; own commits and stream files find the disk full. The register is one
acceptor that is asked in two steps, each of which may be lost. Publishers put chains, a reader asks what the
log holds. Whatever is released is looked for, then and there, on the disk of each member that the register calls in
sync. Then the network heals, and everything must settle, on one history.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from pubsub.protocol.standby import ROOT, Ack, Entries, EntryId, Follow
from pubsub.server.standby.entries import Entry, changes_of
from pubsub.server.standby.following import Following
from pubsub.server.standby.leading import Leading
from pubsub.server.topic.changes import Change, NoteKept

BEAT, SILENCE, TAKE, TRY, SWITCH = 10, 25, 30, 14, 30
SETTLE = 1200
"""Ticks within which everything has settled after the last fault."""

OTHER = {"A": "B", "B": "A"}


class State:
    """What the entries add up to: a log of (publisher, counter), and each publisher's last counter."""

    def __init__(self, entries: list[Entry]) -> None:
        self.log: list[tuple[str, int]] = []
        self.last: dict[str, int] = {}
        for entry in entries:
            for change in changes_of(entry):
                self.apply(change)

    def apply(self, change: Change) -> None:
        assert isinstance(change, NoteKept)
        assert isinstance(change.value, int)
        self.log.append((change.name, change.value))
        self.last[change.name] = change.value


Snapshot = tuple[int, list[tuple[Entry, bool]]]
"""What an fsync that begins now will have put on the disk."""


class File:
    """A stream of entries on a disk that may lose what was not synced, `stream.Stream` in a list."""

    def __init__(self) -> None:
        self.base = ROOT
        self.entries: list[tuple[Entry, bool]] = []
        self.on_disk: list[tuple[Entry, bool]] = []
        self.kept = self.snapshots = self.newest = 0

    def snapshot(self) -> Snapshot:
        self.snapshots += 1
        return self.snapshots, list(self.entries)

    def synced(self, snapshot: Snapshot) -> None:
        """An fsync that was begun then has ended; those end in any order."""
        number, entries = snapshot
        if number > self.newest:
            self.newest, self.on_disk = number, entries

    def fit(self, store_end: EntryId) -> list[Entry]:
        ids = [self.base, *(entry.id for entry, _ in self.entries)]
        if store_end not in ids:
            self.reset(store_end)
        place = 0 if store_end not in ids else ids.index(store_end)
        staged: list[Entry] = []
        for entry, own in self.entries[place:]:
            if own:
                break
            staged.append(entry)
        del self.entries[place + len(staged) :]
        self.on_disk = list(self.entries)
        return staged

    def reset(self, base: EntryId) -> None:
        self.base, self.entries, self.on_disk, self.newest = base, [], [], self.snapshots

    def append(self, entries: list[Entry], own: bool) -> None:
        self.entries += [(entry, own) for entry in entries]

    def cut(self, end: EntryId) -> None:
        while self.entries and self.entries[-1][0].id > end:
            self.entries.pop()
        assert self.end == end

    @property
    def end(self) -> EntryId:
        return self.entries[-1][0].id if self.entries else self.base

    def trim(self) -> None:
        for _ in range(min(self.kept, len(self.entries))):
            self.base = self.entries.pop(0)[0].id
        self.newest = self.snapshots
        self.on_disk = [one for one in self.on_disk if one[0].id > self.base]

    def lose_power(self, random: Random) -> None:
        common = 0
        while common < min(len(self.entries), len(self.on_disk)) and self.entries[common] == self.on_disk[common]:
            common += 1
        if common < len(self.on_disk) and random.random() < 0.5:
            self.entries = list(self.on_disk)  # What was cut off comes back.
        else:
            del self.entries[random.randrange(common, len(self.entries) + 1) :]

    def holds(self, entry: EntryId) -> bool:
        return entry == self.base or any(one.id == entry for one, _ in self.entries)

    def read(self, after: EntryId, bytes_max: int, entries_max: int) -> list[Entry]:
        ids = [self.base, *(entry.id for entry, _ in self.entries)]
        place = ids.index(after) if after in ids else len(ids)
        return [entry for entry, _ in self.entries[place : place + min(entries_max, 3)]]


class Register:
    """One acceptor: (term, primary, in sync); whoever prepared last may have its value accepted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.name, self.up = "R", True
        self.value: tuple[int, str, frozenset[str]] = (1, "A", frozenset("AB"))
        self.ballot = 1

    def on_prepare(self, source: str, token: int, kind: str) -> None:
        primary = self.world.members[self.value[1]]
        if kind == "take" and primary.name != source and self.world.now - primary.seen < TAKE:
            return
        self.ballot += 1
        self.world.send("R", source, "promised", token, self.ballot, self.value)

    def on_accept(self, source: str, token: int, ballot: int, value: tuple[int, str, frozenset[str]]) -> None:
        if ballot == self.ballot:
            self.world.say("chosen", *value)
            self.value = value
            self.world.send("R", source, "accepted", token, value)

    def on_beat(self, source: str, term: int) -> None:
        if term < self.value[0]:
            self.world.send("R", source, "deposed", self.value[0])
        else:
            self.world.members[source].seen = self.world.now


class Member:
    """A process on a copy of the store, and its disk."""

    leading_class: type[Leading] = Leading
    following_class: type[Following] = Following

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.store: list[Entry] = []
        self.file = File()
        self.up = self.busy = False
        self.life = self.seen = 0
        self.full = 0
        self.applied_as_standby: set[EntryId] = set()
        self.leading: Leading | None = None
        self.following: Following | None = None
        self.state: State | None = None
        self.known = 0

    @property
    def end(self) -> EntryId:
        return self.store[-1].id if self.store else ROOT

    def has_on_disk(self, entry: EntryId) -> bool:
        if entry == ROOT or any(one.id == entry for one in self.store):
            return True
        return any(one.id == entry and not own for one, own in self.file.on_disk)

    # Starting and stopping

    def start(self) -> None:
        if self.up or self.life >= 1000:
            return
        self.up, self.busy = True, False
        self.attempt: dict[str, Any] | None = None
        self.quiet = 0
        self.inbox: list[tuple[str, int, Any]] = []
        self.known = 0
        self.follow(self.file.fit(self.end))
        self.begin("resume")
        self.tick()

    def follow(self, staged: list[Entry]) -> None:
        self.leading = self.state = None
        self.following = self.following_class(
            "s1", "0" * 16, self.name, self.end, staged, self.world.random, self.world.now, BEAT
        )
        self.following.known = self.known
        self.since = self.world.now

    def crash(self, power: bool) -> None:
        if not self.up:
            return
        self.world.say(self.name, "loses power" if power else "is killed")
        self.up = False
        self.life += 1
        if power:
            self.file.lose_power(self.world.random)
        self.leading = self.following = None

    def step_down(self) -> None:
        assert self.leading is not None
        self.world.say(self.name, "steps down from", self.leading.term)
        self.life += 1
        self.busy = False
        self.attempt = None
        self.inbox = []
        self.file.cut(self.end) if self.file.holds(self.end) else self.file.reset(self.end)
        self.follow([])
        self.tick()

    def later(self, delay: float, call: Callable[..., None], *args: Any) -> None:
        self.world.at(self.world.now + delay, self.fire, self.life, call, args)

    def fire(self, life: int, call: Callable[..., None], args: Any) -> None:
        if self.up and self.life == life:
            call(*args)

    def send(self, target: str, *message: Any) -> None:
        self.world.send(self.name, target, *message)

    def tick(self) -> None:
        self.later(BEAT, self.tick)
        world = self.world
        if self.attempt and world.now - self.attempt["at"] > TRY:
            self.end_attempt()
        if self.leading is not None:
            self.send("R", "beat", self.leading.term)
            self.leading.beat()
            self.lead()
            self.turn()
        elif self.following is not None:
            heard = max(self.following.heard, self.since)
            if not self.attempt and world.now >= self.quiet and world.now - heard > TAKE + 5 * (self.name == "B"):
                self.begin("take")
            self.flush()

    # The register

    def begin(self, kind: str, in_sync: frozenset[str] = frozenset()) -> None:
        token = self.world.random.getrandbits(40)
        self.attempt = {"kind": kind, "token": token, "at": self.world.now, "set": in_sync}
        self.send("R", "prepare", token, kind)

    def end_attempt(self) -> None:
        self.attempt = None
        self.quiet = self.world.now + self.world.random.randrange(5, 40)
        if not self.world.rules["unsure"] and self.leading is not None:
            self.leading._require_only(self.leading.in_sync)

    def on_promised(self, source: str, token: int, ballot: int, value: tuple[int, str, frozenset[str]]) -> None:
        attempt = self.attempt
        if not attempt or attempt["token"] != token:
            return
        kind, (term, primary, in_sync) = attempt["kind"], value
        new = None
        if self.following is not None:
            if kind == "take" and self.name in in_sync:
                new = (term + 1, self.name, frozenset(self.name))
            elif kind == "resume" and primary == self.name:
                new = (term + 1, self.name, in_sync)
            elif kind == "hand" and self.name in in_sync and self.following.handed:
                new = (term + 1, self.name, frozenset("AB"))
        elif self.leading is not None and kind == "set":
            if (term, primary) != (self.leading.term, self.name):
                self.step_down()
                return
            new = (term, primary, attempt["set"])
        if new is None:
            self.end_attempt()
            return
        self.send("R", "accept", token, ballot, new)

    def on_accepted(self, source: str, token: int, value: tuple[int, str, frozenset[str]]) -> None:
        attempt = self.attempt
        if not attempt or attempt["token"] != token:
            return
        self.attempt = None
        term, _, in_sync = value
        if attempt["kind"] != "set":
            self.world.stats["handed over"] += attempt["kind"] == "hand"
            self.activate(term, in_sync)
        elif self.leading is not None and self.leading.term == term:
            self.world.stats["joined" if len(in_sync) > 1 else "dropped"] += 1
            self.leading.chosen(in_sync)
            self.lead()

    # The primary

    def activate(self, term: int, in_sync: frozenset[str]) -> None:
        world, following = self.world, self.following
        assert following is not None
        self.write()
        self.store += following.promote()
        self.life += 1
        self.following, self.known = None, term
        self.state = State(self.store)
        self.leading = self.leading_class(
            "s1", "0" * 16, self.name, term, in_sync, self.end, self.file, world.now, SILENCE, SWITCH
        )
        world.stats["terms"] += 1
        self.inbox = [("", 0, ("get",))]
        self.seen = world.now
        self.tick()

    def on_asked(self, source: str, number: int, request: Any) -> None:
        leading = self.leading
        if leading is not None and not leading.stalled and not leading.full and len(self.inbox) < 50:
            self.inbox.append((source, number, request))
            self.turn()

    def turn(self) -> None:
        """One loop: what waits is handled, sent to the standby and committed."""
        leading, state = self.leading, self.state
        if leading is None or state is None or self.busy or not self.inbox or leading.deposed:
            return
        inbox, self.inbox, changes, out = self.inbox, [], [], []
        for client, number, request in inbox:
            answer, change = serve(state, request)
            if change is not None:
                state.apply(change)
                changes.append(change)
            if client:
                out.append((client, number, answer))
        entry = leading.begin(changes)
        if entry is not None:
            self.file.append([entry], own=True)
        self.busy = True
        if not self.world.rules["own"]:
            leading.hold([(one, leading.end) for one in out], 1)
        self.exchange()
        slow = self.world.random.randrange(4, 12) if self.world.random.random() < self.world.slow else 0
        self.later(1 + slow + (self.world.random.random() < 0.3), self.committed, entry, out)

    def committed(self, entry: Entry | None, out: list[Any]) -> None:
        leading, world = self.leading, self.world
        assert leading is not None
        self.busy = False
        full = not world.calm and (self.full > 0 or world.random.random() < world.tight)
        if entry is not None and full and entry.id.number > 1:
            self.full = max(0, self.full - 1)
            world.stats["taken back"] += 1
            end = leading.taken_back()
            world.say(self.name, "takes back", entry.id)
            self.file.cut(end)
            self.state = State(self.store)
            out = [(client, number, ("full",)) for client, number, _ in out]
        else:
            if entry is not None:
                self.store.append(entry)
            leading.committed()
        if self.world.rules["own"]:
            leading.hold([(one, leading.end) for one in out], 1)
        self.exchange()
        self.turn()

    def lead(self) -> None:
        leading, world = self.leading, self.world
        if leading is None:
            return
        if leading.deposed:
            self.step_down()
            return
        leading.tick(world.now)
        wanted = leading.proposal(world.now)
        if wanted is not None and not self.attempt and world.now >= self.quiet:
            leading.proposed(wanted)
            self.begin("set", wanted)
        copy = leading.to_copy()
        if copy is not None and not self.busy:
            world.stats["copies"] += 1
            world.at(
                world.now + world.random.choice((2, 15, 40)), self.fire, self.life, self.send,
                (copy[0], "copy", leading.term, copy[1], tuple(self.store)),
            )  # fmt: skip
        self.exchange()

    def exchange(self) -> None:
        leading = self.leading
        if leading is None:
            return
        for message, entries in leading.outgoing():
            self.send(OTHER[self.name], "entries", message, tuple(entries))
        for (client, number, answer), end in leading.released():
            if answer[0] != "full":
                self.world.released(self, end)
            self.send(client, "answer", number, answer)

    def on_ack(self, source: str, ack: Ack) -> None:
        if self.leading is not None:
            self.leading.acknowledged(ack, self.world.now)
            self.lead()

    def on_follow(self, source: str, follow: Follow) -> None:
        if self.leading is not None:
            self.leading.followed(follow, self.world.now)
            if not self.world.rules["progress"] and self.leading._standby is not None:
                self.leading._standby.heard = self.world.now
            self.lead()

    def on_deposed(self, source: str, term: int) -> None:
        if self.leading is not None and self.leading.heard_of(term):
            self.lead()

    def switch(self) -> None:
        if self.up and self.leading is not None:
            self.leading.switch(self.world.now)

    # The standby

    def on_entries(self, source: str, message: Entries, entries: tuple[Entry, ...]) -> None:
        world = self.world
        if self.leading is not None:
            if world.rules["old_term"]:
                self.on_deposed(source, message.term)
            elif message.term < self.leading.term:
                ack = Ack("s1", "0" * 16, self.name, message.term, message.loop, message.end)
                self.send(source, "ack", ack)
            return
        following = self.following
        assert following is not None
        if message.term > following.known and self.attempt:
            self.attempt = None
        for entry in entries:
            known = {one.id for one in self.store}
            if entry.previous in known and entry.previous != self.end and entry.id not in known:
                gone = self.store[[one.id for one in self.store].index(entry.previous) + 1 :]
                if message.term >= following.floor and entry.id > following.end:
                    for one in gone:
                        if one.id in self.applied_as_standby:
                            world.object("applied and taken back", self.name, one.id)
        following.entries(message, entries, world.now)
        self.flush()
        if following.handed and not self.attempt:
            self.begin("hand")

    def flush(self) -> None:
        """What is to be written, and a while later is synced; what is to be applied; what is to be sent."""
        following, world = self.following, self.world
        if following is None:
            return
        if self.write():
            delay = 1 + (world.random.random() < 0.3)
            if world.rules["fsync"]:
                self.later(delay, self.synced, self.file.end, self.file.snapshot())
            else:
                following.synced(self.file.end)
                self.later(delay + 20, self.file.synced, self.file.snapshot())
        entries = following.to_apply()
        if entries:
            self.later(1 + 5 * (world.random.random() < 0.1), self.applied, entries)
        for message in following.outgoing(world.now):
            self.send(OTHER[self.name], "ack" if isinstance(message, Ack) else "follow", message)

    def write(self) -> bool:
        following, world = self.following, self.world
        assert following is not None
        write = following.to_write()
        if write is None:
            return False
        if write.cut is not None:
            self.file.cut(write.cut)
        if not world.calm and world.random.random() < world.tight / 4:
            world.stats["standby full"] += 1
            self.file.cut(following.full_disk())
            return True
        self.file.append(write.entries, own=False)
        return True

    def synced(self, end: EntryId, snapshot: Snapshot) -> None:
        self.file.synced(snapshot)
        if self.following is not None:
            self.following.synced(end)
            self.flush()

    def applied(self, entries: list[Entry]) -> None:
        following = self.following
        if following is None or following.applied != entries[0].previous:
            return
        if self.end != entries[0].previous:
            self.world.object("applied out of order", self.name, self.end, entries[0])
        self.store += entries
        self.applied_as_standby |= {entry.id for entry in entries}
        following.applied_to(entries[-1].id)
        self.flush()

    def on_copy(self, source: str, term: int, token: int, entries: tuple[Entry, ...]) -> None:
        following = self.following
        snapshot = entries[-1].id if entries else ROOT
        if following is None or not following.begin_copy(term, token, snapshot) or not following.copied(token):
            return
        self.world.say(self.name, "takes a copy of", len(entries), "instead of", len(self.store))
        self.store = list(entries)
        self.applied_as_standby &= {entry.id for entry in entries}
        self.file.reset(snapshot)
        self.life += 1
        self.tick()


def serve(state: State, request: Any) -> tuple[Any, Change | None]:
    """The answer, and the change to be made, if any."""
    if request[0] == "get":
        return ("log", tuple(state.log), len(state.log)), None
    _, name, counter, previous = request
    last = state.last.get(name, 0)
    if counter <= last:
        return ("taken", last, len(state.log)), None
    if previous > last:
        return ("gap", last), None
    return ("taken", counter, len(state.log) + 1), NoteKept(name, counter)


class Client:
    """Puts a chain, or reads all; asks either member, or both."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.up = world, name, True
        self.asked: dict[int, tuple[int, Any]] = {}
        self.numbers = self.counter = self.previous = 0
        self.outbox: list[tuple[int, int]] = []
        self.acked: list[int] = []
        self.answered = 0

    def step(self) -> None:
        world, random = self.world, self.world.random
        if self.name == "r":
            self.ask(("get",))
        else:
            if len(self.outbox) < 3 and random.random() < world.busy and not world.over:
                self.counter += 1
                self.outbox.append((self.counter, self.previous))
                self.previous = self.counter
            for row in self.outbox:
                self.ask(("put", self.name, *row))
        world.at(world.now + random.choice((4, 9, 15)), self.step)

    def ask(self, request: Any) -> None:
        self.numbers += 1
        self.asked[self.numbers] = self.world.end, request
        for name in self.world.random.choice(("A", "B", "AB")):
            self.world.send(self.name, name, "asked", self.numbers, request)
        if len(self.asked) > 30:
            del self.asked[min(self.asked)]

    def on_answer(self, source: str, number: int, answer: Any) -> None:
        before, request = self.asked.get(number, (0, None))
        if request is None or answer[0] in {"gap", "full"}:
            return
        world = self.world
        self.answered = world.now
        if answer[-1] < before:
            world.object("went back", self.name, request, answer[0], answer[-1], before, source)
        world.end = max(world.end, answer[-1])
        if answer[0] == "log":
            world.compare(answer[1])
        for row in [row for row in self.outbox if answer[0] == "taken" and row[0] <= answer[1]]:
            self.outbox.remove(row)
            self.acked.append(row[0])


class World:
    """One run, from its seed."""

    def __init__(
        self,
        seed: int,
        rules: dict[str, bool],
        leading: type[Leading],
        following: type[Following],
        trace: bool = False,
    ) -> None:
        self.random, self.rules, self.trace = Random(seed), rules, trace
        random = self.random
        self.now = self.made = self.end = 0
        self.queue: list[Any] = []
        self.cut: set[tuple[str, str]] = set()
        self.objections: list[Any] = []
        self.stats: Counter[str] = Counter()
        self.calm = self.over = False
        self.log: list[tuple[str, int]] = []
        self.loss, self.late = random.choice(((0, 0), (0.02, 0.02), (0.1, 0.08), (0.02, 0.15)))
        self.tight, self.slow = random.choice((0, 0, 0.15, 0.4)), random.choice((0, 0.1))
        self.busy = random.choice((0.5, 0.5, 0.1, 0.02))
        self.pace = random.choice(((5, 20, 50), (5, 20, 50), (3, 6, 12)))
        self.apart = random.random() < 0.15  # A calm run in which a member is alone with the clients now and then.
        if self.apart:
            self.loss, self.late, self.tight, self.slow, self.busy, self.pace = 0, 0, 0, 0, 0.05, (60, 100)
        self.register = Register(self)
        self.members = {name: Member(self, name) for name in "AB"}
        for member in self.members.values():
            member.leading_class, member.following_class = leading, following
        self.clients = [Client(self, name) for name in ("x", "y", "r")]
        self.nodes: dict[str, Any] = {"R": self.register, **self.members} | {one.name: one for one in self.clients}

    def say(self, *what: Any) -> None:
        if self.trace:
            print(self.now, *what)

    def object(self, *what: Any) -> None:
        self.say("OBJECTION", *what)
        self.objections.append(what)

    def at(self, when: float, call: Callable[..., Any], *args: Any) -> None:
        self.made += 1
        heapq.heappush(self.queue, (when, self.made, call, args))

    def send(self, source: str, target: str, *message: Any) -> None:
        if (source, target) in self.cut:
            return
        random = self.random.random
        delay = 1 + (random() < 0.3)
        if not self.calm:
            fate = random()
            if fate < self.loss:
                return
            if fate > 1 - self.late:
                delay += self.random.randrange(5, 90)
            elif fate > 1 - self.late * 1.5:
                self.at(self.now + delay + self.random.randrange(60), self.deliver, source, target, message)
        self.at(self.now + delay, self.deliver, source, target, message)

    def deliver(self, source: str, target: str, message: Any) -> None:
        node = self.nodes[target]
        if node.up:
            getattr(node, "on_" + message[0])(source, *message[1:])

    def run_until(self, when: float) -> None:
        while self.queue and self.queue[0][0] <= when and not self.objections:
            self.now, _, call, args = heapq.heappop(self.queue)
            call(*args)
        self.now = int(when)

    # What must hold

    def released(self, primary: Member, end: EntryId) -> None:
        """An answer leaves: what it says is on the disk of each member that may become primary next."""
        for name in self.register.value[2]:
            if not self.members[name].has_on_disk(end):
                self.object("released and not on the disk", primary.name, name, end)

    def compare(self, log: tuple[tuple[str, int], ...]) -> None:
        """What was handed out once is what is handed out ever after."""
        common = min(len(log), len(self.log))
        if list(log[:common]) != self.log[:common]:
            self.object("two histories", log, self.log)
        if len(log) > len(self.log):
            self.log = list(log)

    # Faults

    def disturb(self) -> None:
        random, chance = self.random, self.random.random()
        if self.apart or chance < 0.35:
            one, two = random.choice((("A", "B"), ("A", "B"), ("A", "R"), ("B", "R")))
            pairs = random.choice((((one, two), (two, one)), ((one, two),), ((two, one),)))
            if self.apart or random.random() < 0.3:  # A member that only clients reach.
                one = random.choice("AB")
                pairs = tuple(pair for two in (OTHER[one], "R") for pair in ((one, two), (two, one)))
            self.cut.update(pairs)
            self.at(
                self.now + random.choice((20, 60, 200) if not self.apart else (100, 200)),
                self.cut.difference_update,
                pairs,
            )
        elif chance < 0.75:
            power = random.random() < 0.4
            for name in random.choice(("A", "B", "A", "B", "AB")):
                self.members[name].crash(power)
                self.at(self.now + random.choice((2, 10, 40, 120)), self.members[name].start)
        elif chance < 0.85:
            for member in self.members.values():
                member.switch()
        elif chance < 0.93:
            random.choice(list(self.members.values())).full = random.randrange(1, 4)
        else:
            member = random.choice(list(self.members.values()))
            if member.leading is not None:
                member.file.kept = max(0, len(member.file.entries) - 2)
                member.file.trim()
        self.at(self.now + random.choice(self.pace), self.disturb)

    def run(self) -> World:
        random = self.random
        for member in self.members.values():
            member.start()
        for client in self.clients:
            self.at(random.randrange(1, 9), client.step)
        self.at(random.randrange(1, 60), self.disturb)
        self.run_until(random.choice((200, 400, 800)))
        if not self.objections:
            self.heal()
        return self

    def heal(self) -> None:
        """No more faults; perhaps one member is gone for good, or the link between both is cut for good."""
        random = self.random
        self.calm = True
        self.cut.clear()
        self.queue = [one for one in self.queue if one[2] not in (self.deliver, self.disturb)]
        heapq.heapify(self.queue)
        gone = ""
        if random.random() < 0.4:
            able = self.register.value[2]
            gone = random.choice([name for name in "AB" if able - {name}])
            self.members[gone].crash(random.random() < 0.5)
            self.members[gone].life += 1000
        for member in self.members.values():
            member.start()
        apart = () if gone else random.choice(((),) * 4 + ((("A", "B"),), (("B", "A"),)))
        self.cut.update(apart)
        self.say("HEALED, gone:", gone, "cut for good:", apart)
        begun = self.now
        self.run_until(begun + 100)
        self.over = True
        both = not gone and not apart
        while not self.settled(both) and self.now < begun + SETTLE and not self.objections:
            self.run_until(self.now + 20)
        self.stats["ticks to settle"] = self.now - begun
        if not self.settled(both):
            self.object("not settled", self.register.value, {n: m.end for n, m in self.members.items()})
        if not self.objections:
            self.check(both)

    def settled(self, both: bool) -> bool:
        if any(client.outbox or self.now - client.answered > 60 for client in self.clients[:2] if client.outbox):
            return False
        if self.now - self.clients[2].answered > 30:
            return False
        if not both:
            return True
        same = self.members["A"].end == self.members["B"].end
        return self.register.value[2] == frozenset("AB") and same

    def check(self, both: bool) -> None:
        """The clients' history against the log that is served now."""
        found = [member for member in self.members.values() if member.up and member.leading is not None]
        if len(found) != 1 or found[0].state is None:
            self.object("primaries", [member.name for member in found])
            return
        log = State(found[0].store).log
        self.compare(tuple(log))
        for client in self.clients[:2]:
            mine = [counter for name, counter in log if name == client.name]
            if mine != list(range(1, len(mine) + 1)):
                self.object("order", client.name, mine)
            if set(client.acked) - set(mine):
                self.object("lost", client.name, sorted(set(client.acked) - set(mine)))
        if both:
            one, other = ([entry.id for entry in member.store] for member in self.members.values())
            if one != other:
                self.object("copies differ")
