"""Members with a state directory each, as in the model of consumer groups (docs/explanation/groups.md).

They crash, lose power, lose their disk, give back and come back. Several messages in hand are handled one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pubsub.protocol import Outcome, Status
from pubsub.protocol.group_bodies import HELD, OFFERED, Range, Say, Tried, part_of
from pubsub.protocol.groups import Work
from tests.server.groups.workers import GROUP, TOPIC, Given

if TYPE_CHECKING:
    from tests.server.groups.world import World

PARTS, ATTEMPTS, KEYS = 3, 3, 4
Place = tuple[str, int]


@dataclass
class Record:
    """What a member knows of a record: its content, whether it is marked, and the attempts before."""

    content: tuple[str, int, int]
    doubtful: bool
    attempts: int

    @property
    def part(self) -> int:
        return part_of(f"k{self.content[2]}".encode(), "", PARTS)


@dataclass
class Effect:
    content: tuple[str, int, int]
    doubtful: bool
    undone: bool = False


def content_of(body: bytes) -> tuple[str, int, int]:
    publisher, counter, key = body.decode().split(":")
    return publisher, int(counter), int(key)


class Member:
    """A client of the group. On its disk: store, number, what is done and not confirmed, effects, what it tried."""

    def __init__(self, world: World, client: str) -> None:
        self.world, self.client = world, client
        self.store, self.number = world.new_store(), 0
        self.hard: set[Place] = set()
        self.soft: dict[Place, Effect] = {}
        self.tried: dict[Place, int] = {}
        self.parts_of: dict[Place, int] = {}
        self.cut, self.up = False, True
        self.forget()

    def forget(self) -> None:
        """A process begins: its memory is empty."""
        self.held: dict[Place, Record] = {}
        self.offered: dict[Place, Record] = {}
        self.running: Place | None = None
        self.gone: set[Place] = set()
        self.parts: set[int] = set()
        self.known: dict[Place, Record] = {}
        self.sent: frozenset[Place] = frozenset()
        self.ends: frozenset[Place] = frozenset()
        self.told_cut = False
        self.opening = self.world.tick()

    # What befalls it

    def crash(self) -> None:
        self.up = False

    def lose_power(self) -> None:
        for effect in self.soft.values():
            effect.undone = True
        self.soft.clear()
        self.tried.clear()
        self.cut = True
        self.crash()

    def lose_disk(self) -> None:
        self.world.lost_stores.add((self.client, self.store))
        self.store = self.world.new_store()
        self.hard, self.soft, self.tried, self.cut = set(), {}, {}, False
        self.crash()

    def open(self) -> None:
        self.up = True
        self.forget()
        self.number = self.world.tick()
        self.fsync()

    def fsync(self) -> None:
        self.hard |= self.soft.keys()
        self.soft.clear()

    def step(self) -> None:
        chance = self.world.random.random()
        if not self.up:
            if chance < 0.3:
                self.open()
        elif chance < 0.015:
            self.crash()
        elif chance < 0.025:
            self.lose_power()
        elif chance < 0.03 and self.world.disks:
            self.lose_disk()
        elif chance < 0.08:
            self.fsync()
        elif chance < 0.12 and self.held:
            self.give_back(self.world.random.choice(list(self.held)), failed=self.world.random.random() < 0.5)
        elif chance < 0.6 and (self.held or self.offered):
            self.handle()
        else:
            self.send()

    # Handling

    def give_back(self, place: Place, *, failed: bool) -> None:
        record = self.held.pop(place)
        gone = {place}
        if self.world.keyed:
            gone |= {other for other, one in self.held.items() if one.part == record.part}
            self.held = {other: one for other, one in self.held.items() if other not in gone}
            self.parts.add(record.part)
        self.gone |= gone
        if failed:
            self.begin(place, record)

    def handle(self) -> None:
        if self.held:
            place = next(iter(self.held)) if self.world.keyed else self.world.random.choice(list(self.held))
            if self.survives(place, self.held[place]):
                self.commit(place, self.held.pop(place))
        elif self.offered and self.running is None:
            place = next(iter(self.offered)) if self.world.keyed else self.world.random.choice(list(self.offered))
            if self.survives(place, self.offered[place]):
                self.running = place  # Its transaction is open, and it is claimed before the commit.

    def begin(self, place: Place, record: Record) -> None:
        world = self.world
        attempts = max(record.attempts, self.tried.get(place, 0))
        self.tried[place] = attempts + 1
        if self.world.keyed:
            self.parts_of[place] = record.part
        again = record.content in world.begun and record.content not in world.released
        if world.before and again and not record.doubtful and not attempts:
            world.violations.append(("begun twice, untold", record.content))
        world.begun.add(record.content)

    def survives(self, place: Place, record: Record) -> bool:
        self.begin(place, record)
        if record.content in self.world.poison or (not self.world.healthy and self.world.random.random() < 0.03):
            self.crash()
            return False
        return True

    def commit(self, place: Place, record: Record) -> None:
        self.tried.pop(place, None)
        effect = Effect(record.content, record.doubtful)
        self.world.effects.append(effect)
        self.soft[place] = effect
        self.parts_of[place] = record.part

    # Speaking

    def ranges(self, places: Any) -> tuple[Range, ...]:
        keyed = self.world.keyed
        return tuple(
            Range(log, offset, offset + 1, self.parts_of[log, offset] if keyed else None) for log, offset in places
        )

    def message(self, want: int, *, claim: bool) -> Work:
        self.number = self.world.tick()
        for places in (self.held, self.offered):
            self.parts_of |= {place: record.part for place, record in places.items()}
        claims = (self.running,) if self.running else ()
        self.sent, self.gone, self.parts = frozenset(self.hard), set(), set()
        self.ends = frozenset(place for place in self.tried if place != self.running)
        self.told_cut = self.cut
        self.known = {**self.offered, **self.held}
        say = Say(
            done=self.ranges(sorted(self.hard)),
            keep=self.ranges(sorted({*self.held, *self.soft})),
            offered=self.ranges(place for place in self.offered if place != self.running),
            claim=self.ranges(claims),
            tried=tuple(Tried(*place, self.tried[place]) for place in sorted(self.ends)),
        )
        return Work(
            self.client, TOPIC, GROUP, self.world.subscription, self.number, self.store, self.opening,
            records_max=want, claim=int(claim or self.world.before), cut=int(self.cut), say=say,
        )  # fmt: skip

    def send(self) -> None:
        draw = self.world.random
        room = 4 - len(self.held) - len(self.offered)
        want = draw.randrange(max(1, room + 1)) if room > 0 else 0
        self.world.send(self, self.message(want, claim=draw.random() < 0.5))

    def receive(self, status: Status) -> None:
        if not self.up or status.outcome is not Outcome.SUCCESS or status.number != self.number:
            return
        given = Given(status)
        self.hard -= self.sent
        self.tried = {place: count for place, count in self.tried.items() if place not in self.ends}
        self.cut = self.cut and not self.told_cut
        known = self.hard | self.soft.keys() | self.gone | self.sent
        held, offered = self._shown(given, HELD), self._shown(given, OFFERED)
        if self.running is not None:
            place, self.running = self.running, None
            if (
                place in held
                and place not in known
                and held[place].part not in self.parts
                and self._is_first(place, held, known)
            ):
                self.commit(place, held[place])
                known = known | {place}
        self.held = {
            p: r for p, r in held.items() if p not in known and not (self.world.keyed and r.part in self.parts)
        }
        self.offered = {
            p: r
            for p, r in offered.items()
            if p not in held and p not in known and not (self.world.keyed and r.part in self.parts)
        }

    def _shown(self, given: Given, kind: str) -> dict[Place, Record]:
        """The records of the ranges of one kind, in the order of the answer's lines."""
        contents = {place: record.content for place, record in self.known.items()}
        contents |= {place: content_of(body) for place, body in given.records.items()}
        out = {}
        for line in given.lines:
            one = line.range
            for place in sorted(place for place in contents if place[0] == one.log and one.low <= place[1] < one.high):
                record = Record(contents[place], line.doubtful, line.attempts)
                if line.kind == kind and one.part in (None, record.part):
                    out[place] = record
        return out

    def _is_first(self, place: Place, held: dict[Place, Record], known: Any) -> bool:
        if not self.world.keyed:
            return True
        part = held[place].part
        return next(other for other, one in held.items() if one.part == part and other not in known) == place
