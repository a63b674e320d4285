"""A member of `pair`: the shipped cores, and their shell in a few lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pubsub.protocol.standby import ROOT, Ack, Entries, EntryId, Follow
from pubsub.server.standby.replication.entries import Entry
from pubsub.server.standby.replication.follower import Following
from pubsub.server.standby.replication.primary import Leading
from pubsub.server.topic.changes import Change, NoteKept
from tests.standby.pair_disk import File, Snapshot, State

if TYPE_CHECKING:
    from tests.standby.pair import World

BEAT, SILENCE, TAKE, TRY, SWITCH = 10, 25, 30, 14, 30

OTHER = {"A": "B", "B": "A"}


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
            heard = max(self.following.received_at, self.since)
            if not self.attempt and world.now >= self.quiet and world.now - heard > TAKE + 5 * (self.name == "B"):
                self.begin("takeover")
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
            if kind == "takeover" and self.name in in_sync:
                new = (term + 1, self.name, frozenset(self.name))
            elif kind == "resume" and primary == self.name:
                new = (term + 1, self.name, in_sync)
            elif kind == "handover" and self.name in in_sync and self.following.handed:
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
            self.world.stats["handed over"] += attempt["kind"] == "handover"
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
        """One loop: the waiting requests are handled, sent to the standby and committed."""
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
                self.leading._standby.received_at = self.world.now
            self.lead()

    def on_deposed(self, source: str, term: int) -> None:
        if self.leading is not None and self.leading.learn_term(term):
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
            self.begin("handover")

    def flush(self) -> None:
        """Write entries, sync them a while later, apply committed ones and send messages."""
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
