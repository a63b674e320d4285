"""Members of a group against the reference server, through loss, doubling, reordering, crashes and power cuts.

The members are the client's own core with the client's own tables, in a database in memory. Effects are rows of a table
beside them. At the end everything is healed and drained, and the tables of all members are compared.
"""

from __future__ import annotations

from random import Random
from typing import Any

import apsw

from pubsub.client.core.changes import Change, GroupJoined
from pubsub.client.core.core import CoreSettings
from pubsub.client.core.group_core import GroupCore
from pubsub.client.core.group_in_hand import ASKING, CLAIMED, LOST, OFFERED, RecordInHand
from pubsub.client.core.group_member import GroupMember
from pubsub.client.core.group_request import Wish
from pubsub.client.core.group_work import Ended, GroupCall
from pubsub.client.core.numbers import EPOCH_SECONDS, Numbers
from pubsub.client.storage.applying import APPLY
from pubsub.client.storage.file_reading import FileReading
from pubsub.client.storage.tables import GROUPS, TABLES
from pubsub.protocol import Status, decode, encode
from pubsub.protocol.group_bodies import KEYED, SHARED, WAIT, GroupValues, Range, encode_values
from pubsub.protocol.groups import Work
from tests.client.groups.reference import Reference

KEYS = [b"a", b"b", b"c", b"d"]


class Disk(FileReading):
    """A member's database: what is committed, and what an fsync covers."""

    def __init__(self) -> None:
        self.db = apsw.Connection(":memory:")
        self.path = "memory"
        for table in (*TABLES, *GROUPS, "create table effects (place integer, doubtful integer, at integer)"):
            self.db.execute(table)
        self.milliseconds = self.cuts = 0
        self.fsync()

    def commit(self, changes: list[Change], effect: tuple[int, int, int] | None = None) -> None:
        with self.db:
            for change in changes:
                for statement, parameters in APPLY[type(change)](change):
                    rows = parameters if isinstance(parameters, list) else [parameters]
                    self.db.executemany(statement, rows)
            if effect is not None:
                self.db.execute("insert into effects values (?, ?, ?)", effect)

    def fsync(self) -> None:
        self._durable = self.db.serialize("main")

    def lose_power(self) -> None:
        self.db = apsw.Connection(":memory:")
        self.db.deserialize("main", self._durable)
        self.cuts += 1

    def effects(self) -> list[tuple[int, int, int]]:
        return list(self.db.execute("select place, doubtful, at from effects"))


class Process:
    """A client of the group, with its directory."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.disk = world, name, Disk()
        self.store = f"{ord(name[-1]):016x}"
        values = GroupValues(KEYED if world.server.parts else SHARED, world.server.parts, WAIT, 600_000, 5)
        text = encode_values(values).decode()
        number, log = world.server.number, world.server.log
        self.disk.commit([GroupJoined(1, "t", world.server.name, self.store, number, log, text, Wish().text())])
        self.disk.fsync()
        self.up = False
        self.call: GroupCall | None = None
        self.start()

    def start(self) -> None:
        """A process begins: its memory is empty."""
        self.up, self.call = True, None
        disk = self.disk
        settings = CoreSettings(
            client=self.name, path="db", publisher=self.store, proxies=1, tries=3, try_seconds=0.2, window=4,
            outbox_bytes_max=1 << 20, prefetch_records=100, prefetch_bytes=10_000,
        )  # fmt: skip

        def save(milliseconds: int) -> None:
            disk.milliseconds = milliseconds

        numbers = Numbers(disk.milliseconds, self.world.wall, self.world.random, save)
        self.core = GroupCore(settings, numbers, disk.cuts, lambda topic: {}, self.world.wall)
        for member in self.core.load_groups(disk.groups()):
            self.core.load_group_work(member, disk.group_done(member.member), disk.group_begun(member.member))
        disk.fsync()  # Opening a store fsyncs it.

    @property
    def member(self) -> GroupMember:
        return self.core.members["t", self.world.server.name]

    def crash(self) -> None:
        self.up = False

    def lose_power(self) -> None:
        self.disk.lose_power()
        self.up = False

    # A turn

    def turn(self) -> None:
        now = self.world.now
        self.core.tick(now)
        due, self.core.due = self.core.due, []
        for one in due:
            self.disk.commit(one.changes)
            self.disk.fsync()
            self.core.synced()
            one.then()
        if self.core.wants_sync:
            self.fsync()
        for out in self.core.outgoing(now):
            assert isinstance(out.message, Work)
            head, body = encode(out.message)
            message = decode(bytes(head), bytes(body))
            assert isinstance(message, Work)
            self.world.send(self, out.token, message)

    def fsync(self) -> None:
        self.disk.fsync()
        self.core.synced()

    def receive(self, core: GroupCore, token: int, status: Status) -> None:
        if self.up and core is self.core:
            core.receive(token, status, self.world.now)

    # The application

    def open_call(self, *, workers: int, before: bool) -> None:
        if (self.call is None and not self.member.stopped) or self.member.life == "left":
            opening = self.member.opening()
            if opening:
                self.disk.commit(opening)
                self.member.opened()
            self.call = GroupCall(workers, self.world.now + 1000.0, 1000, before=before)
            self.member.begin_call(self.call, self.world.now)

    def close_call(self) -> None:
        if self.call is not None:
            self.member.end_call(self.call, self.world.now)
            self.call = None

    def begin(self) -> bool:
        """Begin a record, if there is one."""
        member, call = self.member, self.call
        if call is None or not member.ready or len(member.holdings.hands) >= call.workers:
            return False
        entry = member.front(claimed=member.before)
        assert entry is not None
        changes = member.begin_changes(entry)
        if changes:
            self.disk.commit(changes)
        hand = member.begin(entry, self.world.now)
        self.world.began(self, hand, before=call.before)
        return True

    def go_on(self, hand: RecordInHand) -> bool:
        """Let a handler go on; return True if something happened."""
        member, world = self.member, self.world
        if hand.state == OFFERED:
            member.wants(hand)
        elif hand.state == LOST:
            member.return_hand(hand)
        elif hand.state == CLAIMED:
            own = Range(hand.log, hand.low, hand.high, hand.part)
            changes = member.done_changes((own,), (hand.log, hand.offset))
            entry = member.front(claimed=member.before) if world.random.random() < 0.5 else None
            changes += member.begin_changes(entry) if entry is not None else []
            world.clock += 1
            self.disk.commit(changes, (hand.offset, int(hand.piece.doubtful), world.clock))
            if entry is not None:
                member.ahead(entry)
            member.finished(hand)
            member.pace.took(world.random.choice((0.001, 0.01, 0.5)))
            self.core.group_moved(world.now, fsynced=False)
        return hand.state != ASKING

    def fail(self, hand: RecordInHand) -> None:
        draw = self.world.random.random()
        if hand.state == LOST:
            self.member.return_hand(hand)
        elif draw < 0.4:
            self.member.failed(hand, Ended(hand.attempts))
        elif draw < 0.7:
            self.member.failed(hand, Ended(hand.attempts, self.world.now + 0.5))
        elif draw < 0.8:
            self.member.failed(hand, Ended(hand.attempts, None, "no%20good"))
        else:
            self.member.uncounted(hand)
            self.world.begun.discard(hand.offset)  # It did nothing, by its own word.

    def leave(self) -> None:
        """Close in good order."""
        member = self.member
        member.stop_calls()
        member.lose_hands()
        self.fsync()
        member.leave()
        self.call = None

    def step(self) -> None:
        world, chance = self.world, self.world.random.random()
        if not self.up:
            if chance < 0.3:
                self.start()
            return
        hands = list(self.member.holdings.hands.values())
        if chance < 0.01:
            self.crash()
        elif chance < 0.017:
            self.lose_power()
        elif chance < 0.04:
            self.fsync()
        elif chance < 0.06:
            self.close_call()
        elif chance < 0.065:
            self.leave()
        elif chance < 0.2:
            self.open_call(workers=world.workers, before=world.before)
        elif chance < 0.25 and hands:
            self.fail(world.random.choice(hands))
        elif chance < 0.5:
            self.begin()
        elif chance < 0.8 and hands:
            self.go_on(world.random.choice(hands))
        self.turn() if self.up else None


class World:
    """One run.

    Args:
        seed: decides everything.
    """

    def __init__(self, seed: int, **chosen: Any) -> None:
        self.random = Random(seed)
        self.now, self.clock = 100.0, 0
        parts = chosen.get("parts", self.random.choice((0, 3)))
        self.server: Reference = chosen.get("server", Reference)(parts)
        self.before = chosen.get("before", self.random.random() < 0.35)
        self.workers = chosen.get("workers", self.random.choice((1, 1, 3)))
        self.operated = chosen.get("operated", self.random.random() < 0.25)
        self.trouble = self.random.choice((0.0, 0.05, 0.2))
        self.healthy = False
        self.late: list[tuple[str, Any]] = []
        self.begun: set[int] = set()
        self.violations: list[str] = []
        self.processes = [Process(self, f"m{number}") for number in range(3)]

    def wall(self) -> float:
        return EPOCH_SECONDS + self.now

    def began(self, process: Process, hand: RecordInHand, *, before: bool) -> None:
        """A handler begins."""
        first = hand.attempts == 1 and not hand.piece.doubtful
        if before and first and hand.offset in self.begun and hand.offset not in self.server.released:
            self.violations.append(f"{hand.offset} began twice, untold")
        self.begun.add(hand.offset)

    # The network

    def send(self, process: Process, token: int, message: Work) -> None:
        packet = ("request", (process, process.core, token, message))
        fate = 1.0 if self.healthy else self.random.random()
        if fate < self.trouble:
            self.late.append(packet)
        elif fate < 1.3 * self.trouble:
            return
        else:
            if fate < 1.6 * self.trouble:
                self.late.append(packet)
            self.deliver(packet)

    def deliver(self, packet: tuple[str, Any]) -> None:
        kind, facts = packet
        if kind == "answer":
            process, core, token, status = facts
            process.receive(core, token, status)
            return
        process, core, token, message = facts
        dies = not self.healthy and self.random.random() < 0.3 * self.trouble
        status = self.server.work(message, self.now, dies=dies)
        if status is None:
            return
        answer = ("answer", (process, core, token, status))
        fate = 1.0 if self.healthy else self.random.random()
        if fate < self.trouble:
            self.late.append(answer)
        elif fate > 1.3 * self.trouble or self.healthy:
            if not self.healthy and self.random.random() < 0.3 * self.trouble:
                self.late.append(answer)
            self.deliver(answer)

    # A run

    def operate(self) -> None:
        chance, keys = self.random.random(), self.server.members()
        if chance < 0.3:
            self.server.crash()
        elif chance < 0.7 and keys:
            self.server.silent(self.random.choice(keys))
        elif keys and self.operated:
            self.server.release(self.random.choice(keys))

    def run(self, steps: int) -> World:
        for _ in range(steps):
            self.now += self.random.choice((0.001, 0.01, 0.05, 0.3))
            chance = self.random.random()
            if chance < 0.1 and len(self.server.keys) < 30:
                self.server.skip() if self.random.random() < 0.1 else self.server.put(self.random.choice(KEYS))
            elif chance < 0.14:
                self.operate()
            elif self.late and chance < 0.25:
                self.deliver(self.late.pop(self.random.randrange(len(self.late))))
            else:
                self.random.choice(self.processes).step()
        self.heal()
        self.check()
        return self

    def heal(self) -> None:
        self.healthy = True
        while self.late:
            self.deliver(self.late.pop(self.random.randrange(len(self.late))))
        for process in self.processes:
            if not process.up:
                process.start()
        for _ in range(400):
            self.now += 0.26
            for process in self.processes:
                process.open_call(workers=self.workers, before=self.before)
                process.turn()
                for _ in range(4):
                    process.begin()
                    for hand in list(process.member.holdings.hands.values()):
                        process.go_on(hand)
                    process.turn()
            if self.server.is_idle():
                return
        self.violations.append(f"stuck: {self.server}")

    def check(self) -> None:
        self.violations += self.server.violations
        effects = [(*row, process.name) for process in self.processes for row in process.disk.effects()]
        released, dead = self.server.released, self.server.dead()
        for offset in [offset for offset, key in enumerate(self.server.keys, 1) if key is not None]:
            mine = [row for row in effects if row[0] == offset]
            if not mine and offset not in dead:
                self.violations.append(f"{offset} was lost")
            if mine and offset in dead and offset not in released:
                self.violations.append(f"{offset} is dead and done")
            if len(mine) > 1 and offset not in released:
                self.violations.append(f"{offset} was doubled: {mine}")
            if sum(not row[1] for row in mine) > 1 and offset in released:
                self.violations.append(f"{offset} was doubled, untold: {mine}")
        if self.server.parts:
            self.check_order(effects, {self.server.keys[offset - 1] for offset in {*released, *dead}})

    def check_order(self, effects: list[Any], excused: set[bytes]) -> None:
        highest: dict[bytes, int] = {}
        for offset, _, _, _ in sorted(effects, key=lambda row: row[2]):
            key = self.server.keys[offset - 1]
            if key not in excused and offset < highest.get(key, 0):
                self.violations.append(f"{offset} came after {highest[key]} of its key")
            highest[key] = max(highest.get(key, 0), offset)
