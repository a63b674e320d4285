"""Batches of consumer groups: handed to an HTTP reader, and done when it confirms them in time.

Each reader is a member of its group, with a client of its own. The messages of its open batch are claimed by this
client, and each has a handler that waits for the confirmation. So a confirmed batch is told as done like any other
work. The reader may put single messages off, or reject them, before it confirms the others. A batch that is not
confirmed in time is a failed attempt of each of its messages: they come again, to any member,
and become dead letters of the group in the end. A gateway that restarts has no open batches any more, and its clients
give the messages back.

The rules are docs/explanation/gateway.md, H16 and H17.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from secrets import randbelow
from typing import Any, Final, NamedTuple

from pubsub.base.plurals import counted
from pubsub.client import Later, Message, Reject, Transaction
from pubsub.gateway.client import GatewayClient, GroupTaking
from pubsub.gateway.clients import Clients
from pubsub.gateway.ids import message_id
from pubsub.gateway.limits import GROUP_CONFIRMED_MAX
from pubsub.gateway.messages import json_fields, text_or_base64
from pubsub.gateway.problems import Problem
from pubsub.gateway.schemas import Message as Shown

GATHER_SECONDS: Final = 0.005
"""A batch is complete when no further message came for this time."""

GATHER_TURNS: Final = 10
"""Longest time for which a batch is gathered, in GATHER_SECONDS."""

NUMBERS: Final = 1 << 53
"""Numbers of batches are random below this, so that none of an earlier run of the gateway comes again."""

CONFIRMED: Final = "confirmed"
DECIDED: Final = "decided"
RETURNED: Final = "returned"
LATE: Final = "late"


class NotConfirmed(Exception):
    """The reader of a batch did not confirm it in time: a failed attempt of each message."""


class Key(NamedTuple):
    """A member of a group at this gateway, as its user names it."""

    user: str
    topic: str
    group: str
    member: str

    @property
    def client(self) -> str:
        """The ID of its client."""
        return f"{self.user}.{self.group}.{self.member}"

    @property
    def name(self) -> str:
        """Its name in the registry; no subscriber has a slash in its name."""
        return f"{self.group}/{self.member}"


class OpenBatch:
    """A batch that a reader gets, until its confirmation or its end.

    Args:
        seconds: time limit for the confirmation, from the moment when the batch is complete.

    Attributes:
        number: names it in its path.
        messages: those that it has.
        outcome: CONFIRMED, DECIDED (all are put off or rejected), RETURNED or LATE; "" while it is open.
        size: number of messages that a confirmation has marked as done.
    """

    def __init__(self, seconds: float) -> None:
        self.number, self.seconds = 1 + randbelow(NUMBERS), seconds
        self.messages: list[Message] = []
        self._ends: list[asyncio.Future[Exception | None]] = []
        self.arrived = asyncio.Event()
        self.outcome, self.size = "", 0
        self.taking: GroupTaking | None = None
        self.running: asyncio.Task[int] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def handle(self, message: Message, transaction: Transaction) -> None:
        """Add a message, and wait for its end.

        Raises:
            Later: it is put off, or the batch is given back. Reject: the reader rejects it.
            NotConfirmed: the time of the batch is over.
        """
        if self.outcome:
            raise Later(0)
        end: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.messages.append(message)
        self._ends.append(end)
        self.arrived.set()
        error = await end
        if error is not None:
            raise error
        transaction.execute(
            "INSERT INTO gateway_confirmed VALUES (?, ?, 1, ?) ON CONFLICT (batch) DO UPDATE SET done = done + 1",
            (self.number, self.size, time.time()),
        )

    @property
    def left(self) -> list[Message]:
        """The messages that are neither put off nor rejected."""
        return [message for message, end in zip(self.messages, self._ends, strict=True) if not end.done()]

    def decide(self, ids: Collection[str], error: Later | Reject) -> int:
        """Put messages off, or reject them, and return their number. A message that is decided keeps its decision.

        Args:
            ids: of the messages; none: all that are left.

        Raises:
            Problem: an ID is none of a message of this batch.
        """
        names = [shown_id(message) for message in self.messages]
        for one in ids:
            if one not in names:
                raise Problem("bad-request", f"{one[:80]} is not the id of a message of this batch.")
        chosen = [
            end for name, end in zip(names, self._ends, strict=True) if not end.done() and (not ids or name in ids)
        ]
        for end in chosen:
            end.set_result(error)
        if not self.left:
            self.end(DECIDED)
        return len(chosen)

    async def complete(self, most: int) -> None:
        """Wait a little for further messages that are here, and take no others."""
        for _ in range(GATHER_TURNS):
            count = len(self.messages)
            if count >= most:
                break
            await asyncio.sleep(GATHER_SECONDS)
            if len(self.messages) == count:
                break
        if self.taking is not None:
            self.taking.stop()
        self._timer = asyncio.get_running_loop().call_later(self.seconds, self.end, LATE)

    def end(self, outcome: str) -> None:
        """End the batch; the first outcome counts."""
        if self.outcome:
            return
        self.outcome, self.size = outcome, len(self.left)
        if self._timer is not None:
            self._timer.cancel()
        for end in self._ends:
            if not end.done():
                end.set_result(self._error())

    def _error(self) -> Exception | None:
        """Return what ends the handlers of the messages that are left."""
        if self.outcome == LATE:
            return NotConfirmed(f"not confirmed within {self.seconds:g} s")
        return None if self.outcome == CONFIRMED else Later(0)

    async def ended(self) -> int:
        """Wait until all its messages are done or given back, and return the number of those that are done.

        Raises:
            PubsubError: the disk failed.
        """
        assert self.running is not None
        with suppress(NotConfirmed):
            return await asyncio.shield(self.running)
        return 0


@dataclass(frozen=True)
class Confirmed:
    """A batch that a reader confirmed.

    Attributes:
        size, done: number of its messages, and of those that are done.
    """

    size: int
    done: int


class GroupBatches:
    """The open batches of a gateway.

    Args:
        clients: the clients of the members.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._open: dict[Key, OpenBatch] = {}

    @property
    def count(self) -> int:
        return sum(not batch.outcome for batch in self._open.values())

    def find(self, key: Key) -> OpenBatch | None:
        return self._open.get(key)

    async def take(
        self, key: Key, most: int, wait: float, seconds: float, ends: Sequence[asyncio.Future[Any]]
    ) -> OpenBatch | None:
        """Return the open batch of a member, or a new one; None if no message came.

        Args:
            most: limit of messages in a new batch.
            wait: seconds to wait for the first message.
            seconds: time limit for the confirmation of a new batch.
            ends: events that end the wait.

        Raises:
            PubsubError: as `AsyncClient.process`.
        """
        found = self._open.get(key)
        if found is not None and not found.outcome:
            return found
        if found is not None:
            await self._gone(key, found)
        batch = self._open[key] = OpenBatch(seconds)
        running = batch.running = asyncio.create_task(self._run(key, batch, most, wait))
        arrived = asyncio.ensure_future(batch.arrived.wait())
        try:
            await asyncio.wait([running, arrived, *ends], return_when=asyncio.FIRST_COMPLETED)
            if batch.messages:
                await batch.complete(most)
        except BaseException:
            batch.end(RETURNED)
            raise
        finally:
            arrived.cancel()
            if not batch.messages:
                await self._forget(key, batch)
        if batch.messages:
            return batch
        if not running.cancelled():
            running.result()
        return None

    async def _run(self, key: Key, batch: OpenBatch, most: int, wait: float) -> int:
        try:
            async with self._clients.member(key.user, key.client) as client:
                batch.taking = GroupTaking(client, key.topic, key.group, most)
                return await batch.taking.run(batch.handle, wait)
        finally:
            if batch.outcome not in {CONFIRMED, DECIDED} and self._open.get(key) is batch:
                del self._open[key]

    async def _forget(self, key: Key, batch: OpenBatch) -> None:
        """End a batch without messages."""
        batch.end(RETURNED)
        assert batch.running is not None
        batch.running.cancel()
        await asyncio.gather(batch.running, return_exceptions=True)
        if self._open.get(key) is batch:
            del self._open[key]

    async def _gone(self, key: Key, batch: OpenBatch) -> None:
        assert batch.running is not None
        await asyncio.gather(batch.running, return_exceptions=True)
        if self._open.get(key) is batch:
            del self._open[key]

    async def confirm(self, key: Key, number: int) -> Confirmed | None:
        """Mark the messages of a batch as done, durably; may be repeated.

        Returns:
            None: the member has no such batch, or not any more.

        Raises:
            PubsubError: the disk failed, or the client cannot be opened.
        """
        batch = self._open.get(key)
        if batch is not None and batch.number == number and batch.outcome in {"", CONFIRMED}:
            batch.end(CONFIRMED)
            try:
                await batch.ended()
            finally:
                await self._gone(key, batch)
        async with self._clients.member(key.user, key.client) as client:
            return await _confirmed(client, number)

    async def decide(self, key: Key, number: int, ids: Collection[str], error: Later | Reject) -> tuple[int, int]:
        """Put messages of a batch off, or reject them; may be repeated.

        Args:
            ids: of the messages; none: all that are left.

        Returns:
            The number of these messages, and of those that are left in the batch.

        Raises:
            Problem: the member has no such batch, it is confirmed, or an ID is none of its messages.
            PubsubError: as `confirm`.
        """
        batch = self._open.get(key)
        if batch is not None and batch.number == number and batch.outcome in {"", DECIDED}:
            done = batch.decide(ids, error)
            if not batch.left:
                await batch.ended()
                await self._close(key, number)
            return done, len(batch.left)
        async with self._clients.member(key.user, key.client) as client:
            found = await _confirmed(client, number)
        check_found(found, key.member)
        if found is not None and found.size:
            raise Problem("conflict", "The batch is confirmed, so its messages are done.")
        return 0, 0

    async def _close(self, key: Key, number: int) -> None:
        """Keep the number of a batch without messages to confirm, so that its confirmation is known."""

        def insert(transaction: Transaction) -> None:
            transaction.execute("INSERT OR IGNORE INTO gateway_confirmed VALUES (?, 0, 0, ?)", (number, time.time()))

        async with self._clients.member(key.user, key.client) as client:
            await client.write_synced(insert)

    async def give_back(self, key: Key) -> None:
        """Give back the open batch of a member."""
        batch = self._open.get(key)
        if batch is not None:
            batch.end(RETURNED)
            await self._gone(key, batch)

    async def close(self) -> None:
        """Give back all open batches."""
        await asyncio.gather(*(self.give_back(key) for key in list(self._open)), return_exceptions=True)


async def _confirmed(client: GatewayClient, number: int) -> Confirmed | None:
    rows = client.query("SELECT size, done FROM gateway_confirmed WHERE batch = ?", (number,))
    if not rows:
        return None

    def settle(transaction: Transaction) -> None:
        """Write something, so that the fsync covers the commits of the handlers."""
        transaction.execute("UPDATE gateway_confirmed SET at = max(at, ?) WHERE batch = ?", (time.time(), number))
        transaction.execute(
            "DELETE FROM gateway_confirmed WHERE batch IN"
            " (SELECT batch FROM gateway_confirmed ORDER BY at DESC LIMIT -1 OFFSET ?)",
            (GROUP_CONFIRMED_MAX,),
        )

    await client.write_synced(settle)
    return Confirmed(*rows[0])


def facts(message: Message) -> Shown:
    """Return a message as JSON. One with earlier attempts may have been handled by their readers."""
    contents = json_fields(message.key, message.header_bytes) | text_or_base64("body", message.body)
    if message.doubtful or message.attempts > 1:
        contents["doubtful"] = True
    if message.part is not None:
        contents["part"] = message.part
    return Shown(
        shown_id(message), message.id, message.publisher, str(message.counter), message.stamp,
        attempts=message.attempts, **contents,
    )  # fmt: skip


def shown_id(message: Message) -> str:
    """Return the ID of a message, as readers see it."""
    return message_id(message.publisher, message.counter)


def check_found(found: Confirmed | None, member: str) -> None:
    """Check that a confirmed batch is done.

    Raises:
        Problem: it is not known, or some of its messages were given to other members.
    """
    if found is None:
        raise Problem(
            "not-found",
            f"Member {member} has no such batch: its time was over, or the gateway restarted. Its messages come again,"
            " with doubtful and attempts.",
        )
    if found.done < found.size:
        raise Problem(
            "conflict",
            f"{counted(found.size - found.done, 'message')} of {found.size:,} went to other members meanwhile, and"
            " comes to them with doubtful.",
        )
