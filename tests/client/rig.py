"""Drive a client core by hand: the test sets the time, commits succeed at once, and sent messages go to a list."""

from __future__ import annotations

from random import Random
from zlib import crc32

from pubsub.client.core.chain import Row
from pubsub.client.core.changes import Change, Confirmed
from pubsub.client.core.core import ClientCore, CoreSettings
from pubsub.client.core.effects import Outgoing
from pubsub.client.core.numbers import EPOCH_SECONDS, Numbers
from pubsub.client.core.outbox import Draft
from pubsub.client.core.prefetch import Loss, Taking
from pubsub.client.core.subscription import Subscription
from pubsub.protocol import Message, Outcome, Position, RecordsBuilder, Status, encode_batch

LOG, OTHER = "00000000000000aa", "00000000000000bb"
PUBLISHER = "p/00000000000000cc"


class Rig:
    def __init__(self, cuts: int = 0, proxies: int = 2, database: str = "") -> None:
        self.now = 100.0
        self.committed: list[Change] = []
        self.sent: list[Outgoing] = []
        self.on_disk: dict[str, Position | None] = {}
        numbers = Numbers(0, lambda: EPOCH_SECONDS + 1.0, Random(1), lambda milliseconds: None)
        settings = CoreSettings(
            client="c", path="c.db", publisher="00000000000000dd", proxies=proxies, tries=3, try_seconds=0.1, window=4,
            outbox_bytes_max=1 << 20, prefetch_records=100, prefetch_bytes=10_000, database=database,
        )  # fmt: skip
        self.core = ClientCore(settings, numbers, cuts, lambda topic: {}, lambda: 5.0)

    def turn(self) -> list[Outgoing]:
        """Tick, commit due changes, and return the messages sent now."""
        self.core.tick(self.now)
        due, self.core.due = self.core.due, []
        for one in due:
            self.committed += one.changes
            one.then()
        if self.core.wants_sync:
            self.core.synced()
            self.on_disk = {topic: sub.cursor.position for topic, sub in self.core.subscriptions.items()}
        if any(isinstance(change, Confirmed) for one in due for change in one.changes):
            self.on_disk = {topic: sub.cursor.position for topic, sub in self.core.subscriptions.items()}
        out = self.core.outgoing(self.now)
        self.sent += out
        return out

    def later(self, seconds: float) -> list[Outgoing]:
        """Let time pass."""
        self.now += seconds
        return self.turn()

    def answer(self, outgoing: Outgoing, status: Status) -> list[Outgoing]:
        """Deliver an answer."""
        self.core.receive(outgoing.token, status, self.now)
        return self.turn()

    def put(self, *counts: int, topic: str = "t", seconds: float = 30.0, size: int = 1) -> list[Row]:
        """Put batches with so many records of `size` bytes."""
        draft = Draft(self.core.outbox)
        for count in counts:
            draft.add(topic, [bytes(size)] * count)
        self.core.outbox.accept(draft)
        self.core.finish(topic, self.now + seconds)
        return draft.rows

    def intend(self, on: bool = True, *, insists: bool = True, seconds: float = 30.0) -> tuple[Subscription, Outgoing]:
        """Call subscribe or unsubscribe; return the first transmission."""
        sub = self.core.subscription("t")
        sub.intended(on)
        sub.intent.insists = {self} if insists else set()
        self.core.settle(sub, self.now + seconds)
        (out,) = self.turn()
        return sub, out

    def subscribed(self, offset: int = 0) -> Subscription:
        """Return a settled subscription without waiting calls."""
        sub, out = self.intend()
        self.answer(out, settled(out.message, (LOG, offset)))
        self.core.flights.forgotten.clear()
        return sub

    def wants(self, sub: Subscription, seconds: float = 30.0) -> list[Outgoing]:
        """Let a call wait for messages."""
        self.core.want(sub, self.now + seconds, self.now)
        return self.turn()

    def take(self, sub: Subscription, most: int, *, fsynced: bool = False) -> Taking | Loss:
        """Take messages, with a successful commit."""
        taking = sub.take(most)
        if isinstance(taking, Taking):
            sub.took(taking)
            self.core.moved(sub, self.now, fsynced=fsynced)
        return taking


def settled(message: Message, position: Position | None) -> Status:
    """Build the answer that confirms an intent."""
    return Status("s1", Outcome.SUCCESS, position=position, number=message.number, epoch=message.epoch, log=LOG)  # type: ignore[union-attr]


def records(first: int, counters: list[int], publisher: str = PUBLISHER, log: str = LOG) -> Status:
    """Build an answer with one record for each counter, each its own batch, from offset `first`."""
    builder = RecordsBuilder()
    for place, counter in enumerate(counters):
        builder.add(log, first + place, publisher, counter, 1, encode_batch([b"%d" % counter]), 0, 1)
    body = builder.build()
    last = (log, first + len(counters) - 1)
    return Status("s1", Outcome.SUCCESS, message=last, records=len(counters), checksum=crc32(body), log=log, body=body)


def batch(first: int, counter: int, count: int) -> Status:
    """Build an answer with one run of records."""
    builder = RecordsBuilder()
    bodies = [b"%d" % (counter + place) for place in range(count)]
    builder.add(LOG, first, PUBLISHER, counter, 1, encode_batch(bodies), 0, count)
    body = builder.build()
    return Status(
        "s1", Outcome.SUCCESS, message=(LOG, first + count - 1), records=count, checksum=crc32(body), log=LOG, body=body
    )


def status(outcome: Outcome, **fields: object) -> Status:
    return Status("s1", outcome, **fields)  # type: ignore[arg-type]
