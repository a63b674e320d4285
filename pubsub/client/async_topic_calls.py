"""Add calls about whole topics to the asynchronous client: settings, the topics as objects, and tables."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Unpack

from pubsub.client.async_group_operations import AsyncGroupOperations
from pubsub.client.topic_deletion import TopicDeleted
from pubsub.client.topic_list import TopicFacts
from pubsub.client.topic_objects import Purged
from pubsub.client.topic_settings import SettingTexts, TopicSettings

if TYPE_CHECKING:
    from pubsub.client.async_table import AsyncTable


class AsyncTopicCalls(AsyncGroupOperations):
    """The calls of `AsyncClient` about whole topics."""

    async def settings_of(self, topic: str) -> TopicSettings:
        """Return the settings of a topic; arguments and errors as `Client.settings_of`."""
        return await asyncio.to_thread(self._topic_settings.settings_of, topic)

    async def configure(self, topic: str, *, base: str | None = None, **values: Unpack[SettingTexts]) -> TopicSettings:
        """Change the settings of a topic; arguments and errors as `Client.configure`."""
        return await asyncio.to_thread(self._topic_settings.configure, topic, values, base)

    async def topics(self) -> list[TopicFacts]:
        """Return the topics of the cluster; errors as `Client.topics`."""
        return await asyncio.to_thread(self._topic_objects.topics)

    async def create_topic(self, topic: str, **values: Unpack[SettingTexts]) -> TopicSettings:
        """Create a topic; arguments and errors as `Client.create_topic`."""
        return await asyncio.to_thread(self._topic_objects.create, topic, values)

    async def purge_topic(self, topic: str, *, unread: bool = False) -> Purged:
        """Delete stored messages of a topic; arguments and errors as `Client.purge_topic`."""
        return await asyncio.to_thread(self._topic_objects.purge, topic, unread=unread)

    async def delete_topic(self, topic: str, *, force: bool = False) -> TopicDeleted:
        """Delete a topic; arguments and errors as `Client.delete_topic`."""
        return await asyncio.to_thread(self._topic_objects.delete, topic, force=force)

    def table(self, topic: str, *, bytes_max: int | None = None) -> AsyncTable:
        """Return a topic as a table, for `async with`; arguments and errors as `Client.table`."""
        from pubsub.client.async_table import AsyncTable  # noqa: PLC0415 - few clients need it.
        from pubsub.client.tables import open_table  # noqa: PLC0415 - as above.

        return open_table(self._session, topic, AsyncTable, bytes_max)
