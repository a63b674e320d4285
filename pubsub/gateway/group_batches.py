"""Batches of consumer groups: handed to an HTTP reader, and done when it confirms them in time.

Each reader is a member of its group, with a client of its own. The messages of its open batch are claimed by this
client, and each has a handler that waits for the confirmation. So a confirmed batch is told as done like any other
work. A batch that is not confirmed in time is a failed attempt of each of its messages: they come again, to any member,
and become dead letters of the group in the end. A gateway that restarts has no open batches any more, and its clients
give the messages back.

The rules are docs/explanation/gateway.md, H16 and H17.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from secrets import randbelow
from typing import Any, Final, NamedTuple

from pubsub.base.plurals import counted
from pubsub.client import Later, Message, Transaction
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
        outcome: CONFIRMED, RETURNED or LATE; "" while it is open.
    """

    def __init__(self, seconds: float) -> None:
        self.number, self.seconds = 1 + randbelow(NUMBERS), seconds
        self.messages: list[Message] = []
        self.arrived, self._over = asyncio.Event(), asyncio.Event()
        self.outcome = ""
        self.taking: GroupTaking | None = None
        self.running: asyncio.Task[int] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def handle(self, message: Message, transaction: Transaction) -> None:
        """Add a message, and wait for the end of the batch.

        Raises:
            Later: the batch is given back. NotConfirmed: its time is over.
        """
        if not self.outcome:
            self.messages.append(message)
            self.arrived.set()
            await self._over.wait()
        if self.outcome == RETURNED:
            raise Later(0)
        if self.outcome == LATE:
            raise NotConfirmed(f"not confirmed within {self.seconds:g} s")
        transaction.execute(
            "INSERT INTO gateway_confirmed VALUES (?, ?, 1, ?) ON CONFLICT (batch) DO UPDATE SET done = done + 1",
            (self.number, len(self.messages), time.time()),
        )

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
        if not self.outcome:
            self.outcome = outcome
            if self._timer is not None:
                self._timer.cancel()
            self._over.set()

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
        return len(self._open)

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
            if batch.outcome != CONFIRMED and self._open.get(key) is batch:
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
    shown = message_id(message.publisher, message.counter)
    return Shown(
        shown, message.id, message.publisher, str(message.counter), message.stamp, attempts=message.attempts, **contents
    )


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
