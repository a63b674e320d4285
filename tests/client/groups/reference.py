"""A small server of one consumer group, record by record: the reference for tests of a member's core."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from zlib import crc32

from pubsub.protocol import Outcome, RecordsBuilder, Status, encode_batch
from pubsub.protocol.group_bodies import (
    HELD,
    OFFERED,
    Holding,
    Range,
    join_holdings,
    part_of,
)
from pubsub.protocol.groups import Work

LOG = "00000000000000aa"
PUBLISHER = "p/00000000000000cc"

Key = tuple[str, str]


@dataclass
class Seat:
    """A member: its highest number and opening, and its claims."""

    number: int = 0
    epoch: int = 0
    held: set[int] = field(default_factory=set)


@dataclass
class Rows:
    """The durable state."""

    waiting: set[int] = field(default_factory=set)
    seats: dict[Key, Seat] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    due: dict[int, float] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)
    dead: dict[int, str] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)


class Reference:
    """One group on one server.

    Args:
        parts: 0: it is shared.
        limit: attempts until a record is dead.

    Attributes:
        keys: of the records, by offset from 1; None: the offset has no record any more.
        violations: events that must never happen.
    """

    def __init__(self, parts: int, limit: int = 5) -> None:
        self.parts, self.limit = parts, limit
        self.keys: list[bytes | None] = []
        self.rows, self.offers = Rows(), dict[Key, list[int]]()
        self.violations: list[str] = []
        self.released: set[int] = set()

    name, number, log = "g", 7, LOG

    def __repr__(self) -> str:
        return f"waiting {sorted(self.rows.waiting)}, {self.rows.seats}"

    def close(self) -> None:
        """End it."""

    def is_idle(self) -> bool:
        """Whether nothing waits, and nothing is claimed."""
        return not self.rows.waiting and not any(seat.held for seat in self.rows.seats.values())

    def dead(self) -> set[int]:
        return set(self.rows.dead)

    def members(self) -> list[Key]:
        return list(self.rows.seats)

    def put(self, key: bytes) -> int:
        """Append a record; its body is its offset."""
        self.keys.append(key)
        self.rows.waiting.add(len(self.keys))
        return len(self.keys)

    def skip(self) -> None:
        """Append an offset without a record."""
        self.keys.append(None)

    def part(self, offset: int) -> int | None:
        key = self.keys[offset - 1]
        return part_of(key, PUBLISHER, self.parts) if self.parts and key is not None else None

    def offsets(self, ranges: tuple[Range, ...]) -> list[int]:
        """The records of ranges."""
        out = []
        for one in ranges:
            assert (one.part is None) == (not self.parts)
            out += [
                offset
                for offset in range(one.low, min(one.high, len(self.keys) + 1))
                if self.keys[offset - 1] is not None and (one.part is None or self.part(offset) == one.part)
            ]
        return out

    def crash(self) -> None:
        """Forget all that is not durable."""
        self.offers = {}

    def silent(self, key: Key) -> None:
        """A member is not heard any more, or is thought so."""
        self.offers.pop(key, None)

    def release(self, key: Key) -> None:
        """An operator gives up the claims of a member."""
        seat = self.rows.seats.get(key)
        if seat is not None:
            self.rows.waiting |= seat.held
            self.rows.doubtful |= seat.held
            self.released |= seat.held
            seat.held = set()

    def work(self, m: Work, now: float, *, dies: bool = False) -> Status | None:
        """Handle a message. `dies`: the server ends before its commit."""
        before = copy.deepcopy(self.rows) if dies else None
        answer = self._work(m, now)
        if before is not None:
            self.rows, self.offers = before, {}
            return None
        return answer

    def _work(self, m: Work, now: float) -> Status:
        rows, key = self.rows, (m.sender, m.store)
        seat = rows.seats.setdefault(key, Seat())
        for offset in self.offsets(m.say.done):
            self._finish(offset)
        if m.epoch < seat.epoch:
            return Status(
                "s1", Outcome.SUPERSEDED, reason="opened_again", number=seat.number, epoch=seat.epoch, log=LOG
            )
        if m.number < seat.number:
            return Status("s1", Outcome.SUPERSEDED, reason="a_later_message_came", number=seat.number, log=LOG)
        if m.number > seat.number:
            seat.number, seat.epoch = m.number, m.epoch
            self._apply(m, seat, key, now)
        return self._answer(m, seat, key)

    def again(self, m: Work, now: float) -> Status | None:
        """Serve a message that waits; None if there is nothing to give, and all that it named is still its."""
        key = m.sender, m.store
        seat = self.rows.seats[key]
        before = {*seat.held, *self.offers.get(key, ())}
        self._give(m, seat, key, now, list(self.offers.get(key, ())))
        answer = self._answer(m, seat, key)
        return answer if answer.records or before != {*seat.held, *self.offers.get(key, ())} else None

    def _finish(self, offset: int) -> None:
        rows = self.rows
        rows.done.add(offset)
        rows.waiting.discard(offset)
        rows.doubtful.discard(offset)
        rows.dead.pop(offset, None)
        for seat in rows.seats.values():
            seat.held.discard(offset)

    def _apply(self, m: Work, seat: Seat, key: Key, now: float) -> None:
        rows, say = self.rows, m.say

        def concerns(offset: int) -> bool:
            return offset in seat.held or offset in rows.waiting

        if m.cut:
            for offset in seat.held:
                rows.attempts[offset] = max(rows.attempts.get(offset, 0), 1)
        for tried in say.tried:
            if concerns(tried.offset) and tried.attempts > rows.attempts.get(tried.offset, 0):
                rows.attempts[tried.offset] = tried.attempts
                rows.due[tried.offset] = now + 1.0
        for later in say.later:
            if concerns(later.offset):
                rows.attempts[later.offset] = max(rows.attempts.get(later.offset, 0), later.attempts)
                rows.due[later.offset] = now + later.delay_ms / 1000
        kept = {*self.offsets(say.keep), *self.offsets(say.claim)}
        for offset in sorted(seat.held - kept):
            seat.held.discard(offset)
            rows.waiting.add(offset)
        for dead in say.dead:
            if dead.offset in rows.waiting:
                self._bury(dead.offset, dead.reason)
        for offset, attempts in rows.attempts.items():
            if attempts >= self.limit and offset in rows.waiting:
                self._bury(offset, "attempts")
        offered = [offset for offset in self.offers.pop(key, []) if offset in self.offsets(say.offered)]
        for offset in self.offsets(say.claim):
            if not m.leave and self._claim(seat, offset):
                offered = [other for other in offered if other != offset]
        if not m.leave:
            self._give(m, seat, key, now, offered)
        elif offered:
            self.offers[key] = offered

    def _give(self, m: Work, seat: Seat, key: Key, now: float, offered: list[int]) -> None:
        for offset in self._candidates(key, seat, m.records_max, now, offered):
            if m.claim:
                self._claim(seat, offset)
            else:
                offered.append(offset)
        if offered:
            self.offers[key] = offered

    def _bury(self, offset: int, reason: str) -> None:
        self.rows.waiting.discard(offset)
        self.rows.dead[offset] = reason

    def _claim(self, seat: Seat, offset: int) -> bool:
        rows = self.rows
        if offset not in rows.waiting:
            return False
        if self.parts:
            part = self.part(offset)
            others = [other for other in rows.seats.values() if other is not seat]
            if any(self.part(held) == part for other in others for held in other.held):
                return False
            if min(other for other in rows.waiting if self.part(other) == part) != offset:
                return False
        rows.waiting.discard(offset)
        seat.held.add(offset)
        if offset in rows.done:
            self.violations.append(f"{offset} was given though it is done")
        return True

    def _candidates(self, key: Key, seat: Seat, want: int, now: float, mine: list[int]) -> list[int]:
        rows, out = self.rows, list[int]()
        taken = {offset for other, offered in self.offers.items() if other != key for offset in offered}
        blocked = {self.part(offset) for offset in taken}
        blocked |= {self.part(o) for other in rows.seats.values() if other is not seat for o in other.held}
        for offset in sorted(rows.waiting):
            if len(out) >= want:
                break
            delayed = rows.due.get(offset, 0.0) > now
            if self.parts:
                if self.part(offset) in blocked:
                    continue
                if delayed:
                    blocked.add(self.part(offset))
                    continue
            if not delayed and offset not in taken and offset not in mine:
                out.append(offset)
        return out

    def _answer(self, m: Work, seat: Seat, key: Key) -> Status:
        rows = self.rows
        offered = [offset for offset in self.offers.get(key, []) if offset in rows.waiting]
        if self.parts:
            offered = self._fronts(offered, seat)
        if offered:
            self.offers[key] = offered
        else:
            self.offers.pop(key, None)
        lines = [*self._lines(HELD, sorted(seat.held)), *self._lines(OFFERED, offered)]
        named = {*self.offsets(m.say.keep), *self.offsets(m.say.offered), *self.offsets(m.say.claim)}
        builder = RecordsBuilder()
        for offset in [*sorted(seat.held), *offered]:
            if offset not in named:
                body = encode_batch([b"%d" % offset], [self.keys[offset - 1] or b""])
                builder.add(LOG, offset, PUBLISHER, offset, 1, body, 0, 1)
        raw = builder.build() if builder.records else b""
        body = join_holdings(lines, raw)
        return Status(
            "s1", Outcome.SUCCESS, number=m.number, log=LOG, records=builder.records, checksum=crc32(raw), body=body
        )

    def _fronts(self, offered: list[int], seat: Seat) -> list[int]:
        """Of each part that is offered, as many records from its front."""
        counts: dict[int | None, int] = {}
        theirs = {self.part(held) for other in self.rows.seats.values() if other is not seat for held in other.held}
        for offset in offered:
            counts[self.part(offset)] = counts.get(self.part(offset), 0) + 1
        out = []
        for part, count in counts.items():
            if part not in theirs:
                out += [offset for offset in sorted(self.rows.waiting) if self.part(offset) == part][:count]
        return out

    def _lines(self, kind: str, offsets: list[int]) -> list[Holding]:
        rows, out = self.rows, list[Holding]()
        for offset in offsets:
            attempts, doubtful, part = rows.attempts.get(offset, 0), offset in rows.doubtful, self.part(offset)
            last = out[-1] if out else None
            same = last is not None and (last.attempts, last.doubtful, last.range.part) == (attempts, doubtful, part)
            if last is not None and same and offset >= last.range.high:
                between = range(last.range.high, offset)
                if not any(self.keys[other - 1] is not None and self.part(other) == part for other in between):
                    out[-1] = last._replace(range=last.range._replace(high=offset + 1))
                    continue
            low = offset - 1 if offset > 1 and self.keys[offset - 2] is None else offset
            out.append(Holding(kind, Range(LOG, low, offset + 1, part), attempts, doubtful))
        return out
