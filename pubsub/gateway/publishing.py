"""Puts: simultaneous requests share a commit, a batch on the wire and an fsync at the server.

Each topic has a lane. Requests that arrive while GROUPS_MAX commits of a topic are in flight wait, and the next commit
has them all. So a single request is not delayed, and sixty-four at once cost little more than one. A request with an
Idempotency-Key makes its group's commit an fsynced one, on a thread.

The rule is docs/explanation/gateway.md, H4.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from pubsub.base.limits import BATCH_BYTES_MAX
from pubsub.client import Transaction
from pubsub.client.batch_contents import BatchContents
from pubsub.client.core.chain import Row
from pubsub.client.core.outbox import counters
from pubsub.errors import PubsubError
from pubsub.gateway import idempotency
from pubsub.gateway.client import GatewayClient
from pubsub.gateway.ids import ranges
from pubsub.gateway.limits import BODY_BYTES_MAX, GROUP_BYTES_MAX, GROUP_RECORDS_MAX, GROUPS_MAX, LANES_MAX
from pubsub.gateway.problems import Problem
from pubsub.protocol import RECORD_BYTES_MAX, batch_size
from pubsub.protocol.batch import END_BYTES

Runs = list[tuple[int, int]]
_log: Final = logging.getLogger("pubsub.gateway")


@dataclass
class Written:
    """The result of a put: new in the outbox, or present under its key.

    Attributes:
        publisher, runs: name its messages.
        row: the last outbox row of the put; None: an earlier request or run of the gateway made it.
        replayed: the put happened before.
    """

    publisher: str
    runs: Runs
    row: Row | None = None
    replayed: bool = False


@dataclass
class Put:
    """One request.

    Attributes:
        contents: its messages.
        size: bytes of the messages, keys and headers included.
        key, fingerprint: of a request with an Idempotency-Key; key "" for none.
        done: set when the messages are on the server's disk.
    """

    contents: BatchContents
    size: int
    key: str = ""
    fingerprint: bytes = b""
    done: asyncio.Future[Written] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def count(self) -> int:
        return len(self.contents.bodies)


class Lane:
    def __init__(self, client: GatewayClient, topic: str, timeout: float) -> None:
        self._client, self._topic, self._timeout = client, topic, timeout
        self._waiting: deque[Put] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> bool:
        return not self._tasks and not self._waiting

    def add(self, put: Put) -> None:
        self._waiting.append(put)
        self._start()

    def _start(self) -> None:
        if self._waiting and len(self._tasks) < GROUPS_MAX:
            task = asyncio.create_task(self._send())
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._start()

    async def _send(self) -> None:
        group = self._next_group()
        if not group:
            return
        try:
            if any(put.key for put in group):
                written = await self._commit_keyed(group)
            else:
                written = await self._commit(group)
            await self._settle(group, written)
        except (PubsubError, Problem) as error:
            _fail(group, error)
        except BaseException:
            _fail(group, Problem("internal", "The put was interrupted; it may have happened or not."))
            raise

    def _next_group(self) -> list[Put]:
        """Return the waiting puts that share the next commit, within the limits."""
        group: list[Put] = []
        size = records = 0
        while self._waiting:
            put = self._waiting[0]
            size, records = size + put.size, records + put.count
            if group and put.contents.due != group[0].contents.due:
                break
            if group and (size > GROUP_BYTES_MAX or records > GROUP_RECORDS_MAX):
                break
            self._waiting.popleft()
            if not put.done.done():  # Otherwise the client has disconnected.
                group.append(put)
        return group

    async def _commit(self, group: list[Put]) -> list[Written | Problem]:
        rows = await self._client.put_rows(self._topic, _joined(group), self._timeout)
        return list(_shared(group, rows, self._client.publisher_id))

    async def _commit_keyed(self, group: list[Put]) -> list[Written | Problem]:
        """Put those with a new key into the outbox, in one commit with the keys."""
        client, topic, publisher = self._client, self._topic, self._client.publisher_id
        client.check_put(topic)

        def commit(transaction: Transaction) -> list[Written | Problem]:
            out: list[Written | Problem] = []
            for put in group:
                try:
                    found = idempotency.find(transaction, topic, put.key, put.fingerprint) if put.key else None
                except Problem as problem:
                    out.append(problem)
                    continue
                if found is not None:
                    out.append(Written(*found, replayed=True))
                    continue
                rows = client.add_puts(topic, put.contents, transaction)
                runs = ranges(counters(rows))
                if put.key:
                    idempotency.keep(transaction, topic, put.key, put.fingerprint, publisher, runs)
                out.append(Written(publisher, runs, rows[-1]))
            return out

        return await client.write_synced(commit)

    async def _settle(self, group: list[Put], written: list[Written | Problem]) -> None:
        """Complete each put when its messages are on the server's disk."""
        last = next((one.row for one in reversed(written) if isinstance(one, Written) and one.row is not None), None)
        if last is not None:
            await self._client.settle(last, self._timeout)
        replayed = [one.runs[-1] for one in written if isinstance(one, Written) and one.replayed]
        if replayed:
            await self._client.finish(self._topic, max(sum(run) - 1 for run in replayed), self._timeout)
        for put, one in zip(group, written, strict=True):
            if put.done.done():
                continue
            if isinstance(one, Problem):
                put.done.set_exception(one)
            else:
                put.done.set_result(one)


def _joined(group: list[Put]) -> BatchContents:
    """Return a group's messages, which have one due time, as one sequence.

    If some messages have a key, the others get an empty one.
    """
    if len(group) == 1:
        return group[0].contents
    keyed, headed = (any(column) for column in zip(*[put.contents[1:3] for put in group], strict=True))
    return BatchContents(
        [body for put in group for body in put.contents.bodies],
        [key for put in group for key in put.contents.keys or [b""] * put.count] if keyed else (),
        [block for put in group for block in put.contents.headers or [b""] * put.count] if headed else (),
        group[0].contents.due,
    )


def _shared(group: list[Put], rows: list[Row], publisher: str) -> list[Written]:
    """Return the counters of each request of a group that was put as one sequence."""
    every, place, out = counters(rows), 0, []
    for put in group:
        count = put.count
        out.append(Written(publisher, ranges(every[place : place + count]), rows[-1]))
        place += count
    return out


def _fail(group: list[Put], error: Exception) -> None:
    for put in group:
        if not put.done.done():
            put.done.set_exception(error)
            put.done.exception()  # The client may have disconnected; this avoids asyncio's "never retrieved".


def _check(put: Put) -> None:
    """Check one request, so that its error does not affect others of its group.

    Raises:
        Problem: it cannot be put.
    """
    if put.count > GROUP_RECORDS_MAX:
        raise Problem("too-large", f"The request has too many messages; the limit is {GROUP_RECORDS_MAX:,}.")
    if put.size > BODY_BYTES_MAX:
        raise Problem(
            "too-large", f"The messages are too large; the limit is {BODY_BYTES_MAX:,} bytes with keys and headers."
        )
    columns = [column for column in (put.contents.bodies, put.contents.keys, put.contents.headers) if column]
    tables = END_BYTES * (len(columns) - 1)
    if batch_size(1, put.size + tables) > BATCH_BYTES_MAX:
        largest = max(map(sum, zip(*[map(len, column) for column in columns], strict=True)))
        if batch_size(1, largest + tables) > BATCH_BYTES_MAX:
            limit = f"{RECORD_BYTES_MAX:,} bytes with its key and headers"
            raise Problem("too-large", f"A message is too large; the limit is {limit}.")


class Publishing:
    """The puts of one user. Puts in doubt are sent as soon as possible, even if no request waits for them.

    Args:
        client: of the user.
        timeout: seconds until a put is in doubt.
    """

    def __init__(self, client: GatewayClient, timeout: float) -> None:
        self.client, self._timeout = client, timeout
        self._lanes: dict[str, Lane] = {}
        self._finishing: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        busy = self._finishing is not None and not self._finishing.done()
        return not busy and not self.client.outbox_bytes() and all(lane.idle for lane in self._lanes.values())

    def finish(self) -> None:
        """Send unfinished puts that no request waits for; called regularly."""
        busy = self._finishing is not None and not self._finishing.done()
        if not busy and self.client.outbox_bytes():
            self._finishing = asyncio.create_task(self._finish())

    async def _finish(self) -> None:
        try:
            await self.client.flush(self._timeout)
        except PubsubError as error:
            _log.warning("%s has unfinished puts, and tries them again: %s", self.client.name, error)

    async def put(self, topic: str, put: Put) -> Written:
        """Put a request's messages, and return when they are on the server's disk.

        Raises:
            Problem: its key belongs to another request, or the gateway has reached a limit.
            As `AsyncClient.put`.
        """
        _check(put)
        lane = self._lanes.get(topic)
        if lane is None:
            if len(self._lanes) >= LANES_MAX:
                self._lanes = {name: one for name, one in self._lanes.items() if not one.idle}
                if len(self._lanes) >= LANES_MAX:
                    raise Problem("busy", f"Puts to {LANES_MAX:,} topics are in flight, which is the limit; try again.")
            lane = self._lanes[topic] = Lane(self.client, topic, self._timeout)
        lane.add(put)
        return await put.done
