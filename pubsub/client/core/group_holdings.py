"""Keep the records of a group's member, and take account of the server's answers (docs/explanation/groups.md).

Every record that the server shows as held or offered is in exactly one place here:

    queue      here, and no handler has begun it
    hands      a handler has it
    soft       its effect is committed, and no fsync covers the commit yet; it is kept (GR6)
    hard       its effect is fsynced; it is told as done in each message until one of them is answered (GR9)
    gone       given back since the last message; an answer under way may still show it

`kept` has the claimed ones of queue, hands and soft; `offered` has the offered ones of queue and hands. A message names
both, so all else goes back. A record's range also covers the offsets before it, and behind the last one,
that have no record any more. So the ranges that a message names stay few.

The rules are docs/explanation/groups.md, GR3, GR5, GR6, GR9 and GR16.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pubsub.client.core.group_in_hand import ABSENT, ASKING, CLAIMED, HELD, LOST, OFFERED, REFUSED, RecordInHand
from pubsub.client.core.group_places import Lane, Places, left_of
from pubsub.client.core.group_queue import Entry, GroupQueue, Record, inside
from pubsub.client.core.message import RunSlice
from pubsub.protocol import Records
from pubsub.protocol import group_bodies as bodies
from pubsub.protocol.group_bodies import Holding, Range, Say, part_of


class Missing(NamedTuple):
    """Records that the group lost, of which the application has not learned yet; `reason` is the server's word."""

    range: Range
    reason: str


class Holdings:
    """The records of a member.

    Args:
        parts: of a keyed group; 0: it is shared.

    Attributes:
        queue, hands, soft, hard, kept, offered: see the module. `hands` is by position.
        missing: lost records to raise as `DataLoss`, oldest first.
    """

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.queue = GroupQueue()
        self.hands: dict[tuple[str, int], RecordInHand] = {}
        self.soft, self.hard, self.kept, self.offered = Places(), Places(), Places(), Places()
        self.missing: list[Missing] = []
        self._gone = Places()
        self._gone_parts: set[int] = set()

    @property
    def holds(self) -> bool:
        """True if the server counts on this member for something."""
        return bool(self.kept or self.offered)

    # Between messages

    def take(self, entry: Entry, attempts: int, now: float) -> RecordInHand:
        """Give the first record of an entry to a handler. `attempts`: number of the attempt."""
        record: Record = self.queue.take(entry)
        log = record.piece.run.log
        hand = RecordInHand(
            log, record.offset, record.low, record.high, record.part, record.piece, attempts,
            CLAIMED if record.claimed else OFFERED, now,
        )  # fmt: skip
        self.hands[log, record.offset] = hand
        if record.part is not None:
            self.queue.blocked.add(record.part)
        return hand

    def finish(self, hand: RecordInHand) -> None:
        """Accept the commit of a claimed record's effect."""
        self._end(hand)
        self.soft.add((hand.log, hand.part), hand.low, hand.high)

    def passed_over(self, entry: Entry) -> None:
        """Accept the commit by which the first record of an entry is done without a handler."""
        record = self.queue.take(entry)
        lane = record.piece.run.log, record.part
        if not record.claimed:
            self.offered.discard(lane, record.low, record.high)
        self.soft.add(lane, record.low, record.high)

    def told_missing(self, one: Missing) -> None:
        """Accept the commit by which the application learns of lost records."""
        self.missing.remove(one)
        lane = one.range.log, one.range.part
        self.kept.add(lane, one.range.low, one.range.high)
        self.soft.add(lane, one.range.low, one.range.high)

    def synced(self) -> None:
        """Record an fsync of all commits so far."""
        if self.soft:
            self.kept.remove(self.soft)
            self.hard.update(self.soft)
            self.soft.clear()

    def give_back(self, hand: RecordInHand) -> None:
        """Give back a record in hand; in a keyed group also all behind it in its part (GR16)."""
        self._end(hand)
        self._return(hand.log, hand.part, hand.low, hand.high)
        if hand.part is not None:
            self._return_part(hand.part)

    def _end(self, hand: RecordInHand) -> None:
        hand.over = True
        self.hands.pop((hand.log, hand.offset), None)
        self.queue.blocked.discard(hand.part)

    def _return(self, log: str, part: int | None, low: int, high: int) -> None:
        lane = log, part
        self.kept.discard(lane, low, high)
        self.offered.discard(lane, low, high)
        self._gone.add(lane, low, high)

    def _return_part(self, part: int) -> None:
        self._gone_parts.add(part)
        for entry in self.queue.remove(part):
            self._return(entry.piece.run.log, part, entry.low, entry.high)

    def give_back_queue(self) -> bool:
        """Give back all that no handler has begun; return True if there was something."""
        entries = self.queue.clear()
        for entry in entries:
            self._return(entry.piece.run.log, entry.part, entry.low, entry.high)
            if entry.part is not None:
                self._gone_parts.add(entry.part)
        return bool(entries)

    def lose_all(self) -> None:
        """Forget everything but the finished records: the group is another one now, or this member is."""
        for hand in tuple(self.hands.values()):
            hand.state = LOST
        self.hands.clear()
        self.queue.clear()
        self.queue.blocked.clear()
        self.kept, self.offered = Places(self.soft), Places()
        self.missing.clear()

    # Messages

    def claims(self, *, queued: bool) -> Places:
        """Return the records to claim: those that handlers need, and if `queued` all offered ones.

        Fast handlers that run side by side need their claims soon after each other. One message for all of them
        replaces one for each.
        """
        found = Places()
        for hand in self.hands.values():
            if hand.state == ASKING or (queued and hand.state == OFFERED):
                found.add((hand.log, hand.part), hand.low, hand.high)
        if queued and self.queue.offered:
            for entry in self.queue.entries():
                if not entry.claimed:
                    found.add(entry.lane, entry.low, entry.high)
        return found

    def say(self, claims: Places, done_max: int) -> Say:
        """Return the names of the next message; it settles all that was given back so far.

        Args:
            claims: the records that it asks to claim.
            done_max: most ranges to tell as done. Others are named as kept, since they would go back otherwise.
        """
        self._gone.clear()
        self._gone_parts.clear()
        offered = Places(self.offered)
        offered.remove(claims)
        done = tuple(self.hard)
        kept = Places(one.range for one in self.missing)
        kept.update(self.kept)
        kept.update(done[done_max:])
        return Say(done[:done_max], tuple(kept), tuple(offered), tuple(claims))

    # Answers

    def answered(self, said: Say, lines: Sequence[Holding], records: Records | None) -> None:
        """Take account of the answer to the last message.

        Args:
            said: the words of that message.
            lines: all that the member holds and is offered.
            records: those that the message did not name.
        """
        self.hard.remove(said.done)
        held = Places(one.range for one in lines if one.kind == bodies.HELD)
        offered = Places(one.range for one in lines if one.kind == bodies.OFFERED)
        marked = [one for one in lines if one.attempts or one.doubtful]
        self._update_hands(said, held, marked)
        self._update_queue(held, offered, marked)
        self._add_missing(one for one in lines if one.kind == bodies.LOST)
        self._add_fresh(said, lines, () if records is None else self._slices(records))

    def _update_hands(self, said: Say, held: Places, marked: Sequence[Holding]) -> None:
        claimed = Places(said.claim)
        doubtful = Places(one.range for one in marked if one.doubtful)
        for hand in tuple(self.hands.values()):
            lane = hand.log, hand.part
            if held.has(lane, hand.offset):
                hand.event(HELD)
                self.offered.discard(lane, hand.low, hand.high)
                self.kept.add(lane, hand.low, hand.high)
                if doubtful.has(lane, hand.offset):  # It was given up since it was handed out.
                    hand.piece = hand.piece._replace(doubtful=True)
            else:
                asked = hand.state == ASKING and claimed.has(lane, hand.offset)
                hand.event(REFUSED if asked else ABSENT)
            if hand.state == LOST:
                self.kept.discard(lane, hand.low, hand.high)
                self.offered.discard(lane, hand.low, hand.high)

    def _update_queue(self, held: Places, offered: Places, marked: Sequence[Holding]) -> None:
        """Let the queue have the records that the answer shows, as it shows them."""
        for one in marked:  # Counts and marks may have changed since a record was handed out.
            self.queue.replace(lambda entry, one=one: _with_marks(entry, one))  # type: ignore[misc]
        if _within(self.kept, held) and _within(self.offered, offered):
            return
        self.queue.replace(lambda entry: self._shown(entry, held, offered))
        kept, open_ = Places(self.soft), Places()
        for hand in self.hands.values():
            if hand.state != LOST:
                (kept if hand.state == CLAIMED else open_).add((hand.log, hand.part), hand.low, hand.high)
        for entry in self.queue.entries():
            (kept if entry.claimed else open_).add(entry.lane, entry.low, entry.high)
        self.kept, self.offered = kept, open_

    @staticmethod
    def _shown(entry: Entry, held: Places, offered: Places) -> Iterator[Entry]:
        lane, first = entry.lane, entry.offset
        last = first + entry.records
        if held.covers(lane, first, last):
            entry.claimed = True
            yield entry
        elif not entry.claimed and offered.covers(lane, first, last):
            yield entry
        else:
            for part in entry.split(inside(held, lane)):
                part.claimed = True
                yield part
            if not entry.claimed:
                yield from entry.split(lambda offset: offered.has(lane, offset) and not held.has(lane, offset))

    def _add_missing(self, lines: Iterable[Holding]) -> None:
        known = Places(one.range for one in self.missing)
        for one in lines:
            lane = one.range.log, one.range.part
            for low, high in left_of(one.range, known, self.soft, self.hard, self._gone):
                self.missing.append(Missing(Range(lane[0], low, high, lane[1]), one.reason))

    def _slices(self, records: Records) -> list[tuple[RunSlice, int | None]]:
        """Return the records of an answer in order, with their parts."""
        out: list[tuple[RunSlice, int | None]] = []
        for run in records.runs:
            piece = RunSlice(run, records.data, 0, len(run.ends))
            if not self.parts:
                out.append((piece, None))
                continue
            publisher = run.put_by or run.publisher
            for index in range(piece.stop):
                part = part_of(run.keys[index] if run.keys else b"", publisher, self.parts)
                out.append((piece._replace(start=index, stop=index + 1), part))
        return out

    def _add_fresh(self, said: Say, lines: Sequence[Holding], slices: Sequence[tuple[RunSlice, int | None]]) -> None:
        """Queue the records that came with an answer, and tell the ranges without a record as done."""
        named = Places([*said.keep, *said.offered, *said.claim])
        known = named, self._gone, self.soft, self.hard, self.kept, self.offered
        fresh: list[tuple[Range, Holding]] = []
        for one in lines:
            if one.kind == bodies.LOST or one.range.part in self._gone_parts:
                continue
            log, _, _, part = one.range
            fresh += [(Range(log, low, high, part), one) for low, high in left_of(one.range, *known)]
        if not fresh:
            return
        found = Extents(fresh)
        for piece, part in slices:
            found.cut(piece, part)
        here = {entry.part: self.queue.last(entry.part) for entry in found.entries} if self.parts else {}
        for entry in found.settle():
            self._queue(entry, here.get(entry.part))
        self.hard.update(found.empty())

    def _queue(self, entry: Entry, last: Entry | None) -> None:
        """Queue fresh records, unless something of their part that was here before belongs behind them.

        Args:
            last: the last records of the part that were here before.
        """
        part = entry.part
        if part is not None and (part in self._gone_parts or self._belongs_before(entry, last)):
            self._return(entry.piece.run.log, part, entry.low, entry.high)
            self._return_part(part)
            return
        self.queue.add(entry)
        (self.kept if entry.claimed else self.offered).add(entry.lane, entry.low, entry.high)

    def _belongs_before(self, entry: Entry, last: Entry | None) -> bool:
        """Return True if the order of fresh records and those that were here is not known to be right."""
        log, offset = entry.piece.run.log, entry.offset
        if last is not None and (last.piece.run.log != log or last.offset > offset):
            return True
        for hand in self.hands.values():
            if hand.part == entry.part and hand.state == CLAIMED and hand.log == log and hand.offset > offset:
                hand.state = LOST
                self.kept.discard((log, hand.part), hand.low, hand.high)
                return True
        return False


class Extents:
    """Assigns to fresh records the offsets that are told as done with them.

    Args:
        fresh: ranges without a record here, each with its line of the answer.

    Attributes:
        entries: the records within them, in the order of the answer.
    """

    def __init__(self, fresh: Iterable[tuple[Range, Holding]]) -> None:
        self._slots: dict[Lane, list[tuple[Range, Holding, list[Entry]]]] = {}
        for one, line in fresh:
            self._slots.setdefault((one.log, one.part), []).append((one, line, []))
        self.entries: list[Entry] = []

    def cut(self, piece: RunSlice, part: int | None) -> None:
        """Add the records of a piece that are within the ranges."""
        base = piece.run.offset
        for one, line, entries in self._slots.get((piece.run.log, part), ()):
            start, stop = max(one.low - base, piece.start), min(one.high - base, piece.stop)
            if start < stop:
                inner = piece._replace(start=start, stop=stop, doubtful=line.doubtful)
                claimed = line.kind == bodies.HELD
                entry = Entry(inner, base + start, base + stop, part, line.attempts, claimed=claimed)
                entries.append(entry)
                self.entries.append(entry)

    def settle(self) -> list[Entry]:
        """Give each gap to the record behind it, and the last gap of a range to the record before it."""
        for slots in self._slots.values():
            for one, _, entries in slots:
                before = one.low
                for entry in sorted(entries, key=lambda entry: entry.offset):
                    entry.low, before = before, entry.high
                    last = entry
                if entries:
                    last.high = one.high
        return self.entries

    def empty(self) -> list[Range]:
        """Return the ranges without a record."""
        return [one for slots in self._slots.values() for one, _, entries in slots if not entries]


def _with_marks(entry: Entry, line: Holding) -> Iterator[Entry]:
    """Yield an entry with the marks of a line of the answer, where the line concerns it."""
    log, low, high, part = line.range
    same = (entry.attempts, entry.piece.doubtful) == (line.attempts, line.doubtful)
    if same or entry.lane != (log, part) or entry.offset >= high or entry.offset + entry.records <= low:
        yield entry
        return
    for inner in (
        *entry.split(lambda offset: offset < low),
        *entry.split(lambda offset: low <= offset < high),
        *entry.split(lambda offset: offset >= high),
    ):
        if low <= inner.offset < high:
            inner.attempts, inner.piece = line.attempts, inner.piece._replace(doubtful=line.doubtful)
        yield inner


def _within(some: Places, others: Places) -> bool:
    return all(others.covers((log, part), low, high) for log, low, high, part in some)
