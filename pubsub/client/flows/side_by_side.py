"""Handle messages of a plain subscription side by side: `process(…, concurrency=…)`.

Each message is first put aside, in one commit with the position: it then is a row of its own in the client's state, as
a message that was put off. So the end of each handler is one commit that concerns no other message. After a kill, the
messages in hand are waiting messages with a counted attempt, and the next call hands them out again.

With `hold="key"` the messages of one key are handled one after the other, in their order. With `hold="none"` no order
is kept. With `hold="all"` the next message would have to wait for the one before, so a call refuses it.

The rules are docs/explanation/retries.md, J3 and J11.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import get_ident
from typing import Any, Final
from weakref import ref

from pubsub.client.core.changes import PutAside
from pubsub.client.core.message import Batch, Message
from pubsub.client.core.prefetch import Loss, Taking
from pubsub.client.core.subscription import Subscription
from pubsub.client.core.waiting import ALL, KEY, Waiting
from pubsub.client.flows.attempts import Attempt
from pubsub.client.flows.flow import Flow
from pubsub.client.flows.gets import Gets
from pubsub.client.flows.handlers import AsyncHandler
from pubsub.client.flows.processing import Processing, current_holder
from pubsub.client.flows.turns import check_topics
from pubsub.client.session import Session
from pubsub.errors import CallerError

AHEAD: Final = 16
"""For each handler, the most messages of a topic that are put aside while all of their keys are in hand."""


class Hands:
    """Mark of a call that runs handlers side by side.

    Attributes:
        tasks: the tasks of its workers.
    """

    def __init__(self) -> None:
        self.tasks: set[Any] = set()


def check_side_by_side(hold: str, concurrency: int) -> None:
    """Check that messages may be handled side by side.

    Raises:
        CallerError: the order that `hold` keeps does not allow it.
    """
    if hold == ALL:
        raise CallerError(
            f'concurrency={concurrency} needs hold="key" (the order of each key) or hold="none" (no order): with'
            ' hold="all" each message waits for the one before'
        )


class SideBySide(Processing):
    """The messages of a call of `process` with `concurrency` above 1.

    Args:
        topics: as for `process`.
        hold: the messages that wait behind one that waits or is in hand: those with its key, or none.
        concurrency: most handlers at a time.
    """

    def __init__(self, session: Session, gets: Gets, topics: str | Sequence[str], hold: str, concurrency: int) -> None:
        super().__init__(session, gets)
        check_side_by_side(hold, concurrency)
        self.topics, self.hold_mode, self.concurrency = check_topics(topics), hold, concurrency
        self.hands = Hands()
        self._ours = ref(self.hands)
        self._subs: list[Subscription] = []
        self._ready: list[Subscription] = []

    # The source of a worker pool

    def wait(self, started: float, until: float) -> Flow[bool]:
        """Wait until a message is here."""
        self._ready = yield from self.gets.first_of(self.topics, started, until, self.hold_mode)
        return bool(self._ready)

    def hold(self) -> None:
        """Keep other calls off the topics, and go on asking for their messages while handlers run."""
        session = self.session
        with session.entered():
            for sub in self._ready:
                if sub.busy is None:
                    sub.busy, sub.side_by_side, sub.row = self._ours, True, None
                    self._subs.append(sub)
                    session.core.want(sub, float("inf"), session.now)
            session.turn()

    def release(self) -> None:
        """Let other calls take from the topics again."""
        session = self.session
        with session.lock:
            for sub in self._subs:
                sub.waiting -= 1
                sub.until = session.now
                if sub.busy is self._ours:
                    sub.busy, sub.side_by_side = None, False
            self._subs = []
        session.tell_waiting()
        self.send_held()

    def ready(self) -> bool:
        """Return True if a message can begin now. Takes no lock and changes nothing."""
        return any(self._is_due(sub) or self._may_fill(sub) for sub in self._subs)

    def _is_due(self, sub: Subscription) -> bool:
        return sub.intent.on and sub.may_retry and self.session.core.waiting.due(sub.topic) <= self.session.now

    def _may_fill(self, sub: Subscription) -> bool:
        """Return True if further messages of a topic may be put aside."""
        waiting = self.session.core.waiting
        if not sub.intent.on or not sub.available or waiting.count(sub.topic) >= AHEAD * self.concurrency:
            return False
        return bool(self.gets.is_free(sub, self.hold_mode, self.session.now))

    def begin(self, *, first: bool) -> Attempt | int | None:  # type: ignore[override]
        """Begin a message that was put aside; put further ones aside if none of these is due. The lock is held."""
        for sub in self._in_turn():
            if self._is_due(sub) and (row := self.session.core.waiting.next(sub.topic, self.session.now)) is not None:
                self.gets.served = sub.topic
                return self._take_in_hand(sub, row)
            if self._may_fill(sub):
                found = self._fill(sub, first=first)
                if found is not None:
                    return found
        return None

    def _in_turn(self) -> list[Subscription]:
        return sorted(self._subs, key=lambda sub: (sub.topic <= self.gets.served, sub.topic))

    def _take_in_hand(self, sub: Subscription, row: Waiting) -> Attempt | int:
        found = self._begin_waiting(sub, row, self.hold_mode)
        sub.row = None
        if isinstance(found, Attempt):
            self.session.core.waiting.begin(row)
        return found

    def _fill(self, sub: Subscription, *, first: bool) -> int | None:
        """Put the next messages aside; return 0, or None if that is not possible now."""
        session, waiting = self.session, self.session.core.waiting
        self.gets.close_chunk(sub)
        taking = sub.take(self.concurrency, session.clock.wall())
        if isinstance(taking, Loss):
            if not first:
                return None
            self.gets.dead_letter_loss(sub, taking)
        assert isinstance(taking, Taking)
        messages = list(Batch(sub.topic, taking.pieces))
        if messages and sub.cursor.waits(messages[0].position, session.now):
            return None
        sizes = [len(one.body) + len(one.key) + len(one.header_bytes) for one in messages]
        if messages and not waiting.has_room(sum(sizes), len(messages)):
            waiting.block(sub.topic)
            return None
        tried, later = (sub.cursor.attempt(messages[0].position) - 1, sub.cursor.later) if messages else (0, 0)
        rows = [
            self._row(sub, message, waiting.next_number() + place, 0 if place else tried, 0 if place else later)
            for place, message in enumerate(messages)
        ]
        fsynced = session.commit([*taking.change(sub.topic), *rows])
        self.gets.took(sub, taking, fsynced=fsynced)
        if session.recorder is not None:
            session.recorder.delivered(sub.topic, taking.pieces, handler=True, result="later")
        for row, size in zip(rows, sizes, strict=True):
            waiting.add(Waiting(row.number, sub.topic, row.lane, size, row.attempts, row.later, session.now))
        return 0

    def _row(self, sub: Subscription, message: Message, number: int, attempts: int, later: int) -> PutAside:
        lane = message.key if self.hold_mode == KEY else b""
        return PutAside(
            number, sub.topic, message.id, message.publisher, message.counter, message.stamp, message.body,
            message.key, message.header_bytes, message.doubtful, lane, attempts, later, self.session.clock.wall(), 0.0,
        )  # fmt: skip

    async def attempt(self, found: Attempt, handler: AsyncHandler, *, awaits: bool) -> int:
        """Run the handler and commit."""
        task = current_holder(awaits=awaits)
        self.hands.tasks.add(task)
        try:
            return await self.run(found, handler, awaits=awaits)
        finally:
            self.session.handlers.discard(get_ident())
            self.hands.tasks.discard(task)

    def abandon(self, found: Attempt) -> None:
        """Take back the count of an attempt that was not the handler's fault."""
        session = self.session
        if not found.settled:
            self._uncount(found)
        with session.lock:
            if found.row is not None and not session.is_cut_off:
                self.session.core.waiting.give_back(found.row)

    def between(self) -> None:
        """Send due messages. The lock is held."""
        self.send_due()

    def _let_go(self, sub: Subscription) -> None:
        """Mark that a handler has ended; the others go on."""
        self.session.handlers.discard(get_ident())
        self.session.tell_waiting()
