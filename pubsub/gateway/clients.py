"""The open clients: one for each user's puts and one for each subscriber, closed after a time without use.

At most OPEN_CLIENTS_MAX are open. If another is needed, the client unused for longest is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

import zmq

from pubsub.config.settings import ClientSettings
from pubsub.errors import PubsubError
from pubsub.gateway import idempotency, mailbox
from pubsub.gateway.client import GatewayClient
from pubsub.gateway.limits import IDLE_SECONDS, OPEN_CLIENTS_MAX
from pubsub.gateway.problems import Problem
from pubsub.gateway.publishing import Publishing

_log: Final = logging.getLogger("pubsub.gateway")
CONFIRMED: Final = (
    "CREATE TABLE IF NOT EXISTS gateway_confirmed ("
    " batch INTEGER PRIMARY KEY, size INTEGER NOT NULL, done INTEGER NOT NULL, at REAL NOT NULL)",
)
"""Tables of a member of a consumer group: its confirmed batches (`gateway/group_batches.py`)."""

PUBLISHER: Final = "http"
"""Second half of the ID of a client that puts."""


class _Open:
    def __init__(self, opening: asyncio.Task[GatewayClient]) -> None:
        self.opening = opening
        self.users = 0
        self.used = monotonic()


class Clients:
    """The gateway's clients.

    Args:
        settings: of all of them; `key_file` is for users without a key of their own.
        directory: the gateway's state directory.
    """

    def __init__(self, settings: ClientSettings, directory: Path) -> None:
        self._settings, self._directory = settings, directory
        self._context: zmq.Context[Any] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 8 * OPEN_CLIENTS_MAX)
        self._open: dict[str, _Open] = {}
        self._publishing: dict[str, Publishing] = {}
        self._closing: dict[str, asyncio.Task[None]] = {}

    @property
    def count(self) -> int:
        return len(self._open)

    async def publishing(self, user: str) -> Publishing:
        """Return the puts of a user. The client stays open while a put is in flight, so put before the next `await`.

        Raises:
            PubsubError: the client cannot be opened.
        """
        name = f"publishers/{user}.{PUBLISHER}"
        found = self._publishing.get(name)
        if found is None:
            entry = await self._entry(user, f"{user}.{PUBLISHER}", "publishers")
            entry.users += 1
            try:
                client = await self._opening(name, entry)
            finally:
                entry.users -= 1
            found = self._publishing.get(name) or Publishing(client, self._settings.timeout_seconds)
            self._publishing[name] = found
        self._open[name].used = monotonic()
        return found

    @asynccontextmanager
    async def subscriber(self, user: str, client: str) -> AsyncIterator[GatewayClient]:
        """Open a subscriber's client and keep it open during the block.

        Raises:
            PubsubError: the client cannot be opened. Problem: too many are open.
        """
        async with self._used(user, client, "subscribers") as opened:
            yield opened

    @asynccontextmanager
    async def member(self, user: str, client: str) -> AsyncIterator[GatewayClient]:
        """Open the client of a member of a consumer group, and keep it open during the block.

        Raises:
            As `subscriber`.
        """
        async with self._used(user, client, "groups") as opened:
            yield opened

    @asynccontextmanager
    async def _used(self, user: str, client: str, kind: str) -> AsyncIterator[GatewayClient]:
        name = f"{kind}/{client}"
        entry = await self._entry(user, client, kind)
        entry.users += 1
        try:
            yield await self._opening(name, entry)
        finally:
            entry.users -= 1
            entry.used = monotonic()

    async def _entry(self, user: str, client: str, kind: str) -> _Open:
        """Return a client that is open or about to open, but not about to close."""
        name = f"{kind}/{client}"
        while name in self._closing:
            await asyncio.wait([self._closing[name]])
        entry = self._open.get(name)
        if entry is None:
            self._make_room()
            opening = asyncio.create_task(asyncio.to_thread(self._opened, user, client, kind))
            entry = self._open[name] = _Open(opening)
        return entry

    async def _opening(self, name: str, entry: _Open) -> GatewayClient:
        try:
            return await asyncio.shield(entry.opening)
        except PubsubError:
            if self._open.get(name) is entry:
                del self._open[name]
            raise

    def _opened(self, user: str, client: str, kind: str) -> GatewayClient:
        own = self._directory / "keys" / f"{user}.key"
        settings = replace(
            self._settings,
            directory=self._directory / kind,
            database=None,  # The gateway's own tables are in the files of its clients.
            key_file=own if own.exists() else self._settings.key_file,
        )
        opened = GatewayClient(client, settings=settings, context=self._context)
        if kind == "publishers":
            opened.make_tables(idempotency.TABLES)
        elif kind == "groups":
            opened.make_tables(CONFIRMED)
        else:
            mailbox.make_tables(opened)
        return opened

    def _make_room(self) -> None:
        """Close an unused client if the limit is reached."""
        if len(self._open) + len(self._closing) < OPEN_CLIENTS_MAX:
            return
        idle = [(entry.used, name) for name, entry in self._open.items() if self._is_idle(name, entry)]
        if not idle and not self._closing:
            raise Problem("busy", f"{OPEN_CLIENTS_MAX} clients are in use, which is the limit; try again.")
        if idle:
            self._end(min(idle)[1])

    def _is_idle(self, name: str, entry: _Open) -> bool:
        publishing = self._publishing.get(name)
        return not entry.users and entry.opening.done() and (publishing is None or publishing.idle)

    async def start(self) -> None:
        """Open the clients of users that have put before, so that their unfinished puts are sent."""
        for path in sorted((self._directory / "publishers").glob(f"*.{PUBLISHER}.db")):
            try:
                publishing = await self.publishing(path.name.removesuffix(f".{PUBLISHER}.db"))
                publishing.finish()
            except (PubsubError, Problem) as error:
                _log.warning("%s: %s", path, error)

    def sweep(self) -> None:
        """Close clients without recent use, and send unfinished puts; called regularly."""
        for publishing in self._publishing.values():
            publishing.finish()
        now = monotonic()
        for name, entry in list(self._open.items()):
            if self._is_idle(name, entry) and now - entry.used > IDLE_SECONDS:
                self._end(name)

    def _end(self, name: str) -> asyncio.Task[None]:
        entry = self._open.pop(name)
        self._publishing.pop(name, None)
        task = self._closing[name] = asyncio.create_task(_close(entry))
        task.add_done_callback(lambda _: self._closing.pop(name, None))
        return task

    async def close(self) -> None:
        """Close all clients; unfinished puts stay on disk."""
        tasks = [self._end(name) for name in list(self._open)]
        await asyncio.gather(*tasks, *self._closing.values())
        await asyncio.to_thread(self._context.term)


async def _close(entry: _Open) -> None:
    with suppress(PubsubError):
        client = await entry.opening
        await client.close()
