"""Add calls about whole topics to both clients: their tables."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Unpack

from pubsub.client.group_operations import AsyncGroupOperations, GroupOperations
from pubsub.client.topic_settings import SettingTexts, TopicSettings

if TYPE_CHECKING:
    from pubsub.client.tables import AsyncTable, Table


class TopicCalls(GroupOperations):
    """The calls of `Client` about topics."""

    def table(self, topic: str, *, bytes_max: int | None = None) -> Table:
        """Return a topic as a table: the last message of each key, in memory (docs/how-to/keep-the-latest.md).

        Use it in a `with` statement. It reads the topic from the begin, and follows it on a thread of its own until the
        end of the statement. It needs no subscription, acknowledges nothing, and keeps nothing on the disk.

        Args:
            topic: as for `put`.
            bytes_max: limit of the bytes of keys and values, with 150 more for each key; None: 256 MiB.

        Raises:
            InvalidName, CallerError: the topic or the limit is not allowed.

        The begin of the `with` statement raises:
            Unavailable: the topic was not read within the client's time limit.
            TooLarge: the table has more bytes than its limit.
            NotAllowed, KeyRefused: as `get`.
            Refused: a server has a release without tables.
        """
        from pubsub.client.tables import Table, open_table  # noqa: PLC0415 - few clients need it.

        return open_table(self._session, topic, Table, bytes_max)


class AsyncTopicCalls(AsyncGroupOperations):
    """The calls of `AsyncClient` about settings and tables."""

    async def settings_of(self, topic: str) -> TopicSettings:
        """Return the settings of a topic; arguments and errors as `Client.settings_of`."""
        return await asyncio.to_thread(self._topic_settings.settings_of, topic)

    async def configure(self, topic: str, *, base: str | None = None, **values: Unpack[SettingTexts]) -> TopicSettings:
        """Change the settings of a topic; arguments and errors as `Client.configure`."""
        return await asyncio.to_thread(self._topic_settings.configure, topic, values, base)

    def table(self, topic: str, *, bytes_max: int | None = None) -> AsyncTable:
        """Return a topic as a table, for `async with`; arguments and errors as `Client.table`."""
        from pubsub.client.tables import AsyncTable, open_table  # noqa: PLC0415 - few clients need it.

        return open_table(self._session, topic, AsyncTable, bytes_max)
