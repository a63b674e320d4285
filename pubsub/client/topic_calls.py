"""Add calls about whole topics to both clients: their settings, and their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub.client.client_base import ClientBase
from pubsub.client.topic_settings import TopicSettings

if TYPE_CHECKING:
    from pubsub.client.tables import AsyncTable, Table


class TopicCalls(ClientBase):
    """The calls of `Client` about topics."""

    def settings_of(self, topic: str) -> TopicSettings:
        """Return the settings of a topic; the defaults if it does not exist.

        Raises:
            InvalidName, CallerError: the topic is not allowed, or belongs to a service.
            Unavailable: no answer came within the client's time limit.
            NotAllowed, KeyRefused: as `put`; this needs the right to get or to operate.
            Refused: a proxy or server has a release without settings.
        """
        return self._topic_settings.settings_of(topic)

    def configure(
        self,
        topic: str,
        *,
        keep: str | None = None,
        drop: str | None = None,
        base: str | None = None,
        tombstones: str | None = None,
    ) -> TopicSettings:
        """Change the settings of a topic, and return those in force. A topic that does not exist is created.

        Args:
            topic: as for `put`.
            keep: how much stays although every subscriber has acknowledged it: `none`, `ever`, or an age (`7d`), bytes
                (`10GiB`) and a number (`1000 records`), separated by commas. Any of several amounts lets a message go.
                `latest`: the last message of each key stays, and a message without a key.
            drop: beyond what a message goes although a subscriber has not acknowledged it: `never`, an age or bytes.
                The subscriber gets `DataLoss`. It takes nothing that `keep` still keeps.
            base: change these settings only if they have this version; None: the present ones.
            tombstones: with `keep=latest`, how long an empty message, which deletes its key, stays; at least `1h`.

        Raises:
            InvalidName, CallerError: the topic or a value is not allowed; nothing was sent.
            NotNow: the settings have another version than `base`.
            NotAllowed, KeyRefused: as `put`; this needs the right to operate.
            Unavailable: no answer came in time; the change may still be in force. Repeat it.
            Refused: a proxy or server has a release without settings.
        """
        return self._topic_settings.configure(topic, keep, drop, base, tombstones)

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


class AsyncTopicCalls(ClientBase):
    """The calls of `AsyncClient` about tables."""

    def table(self, topic: str, *, bytes_max: int | None = None) -> AsyncTable:
        """Return a topic as a table, for `async with`; arguments and errors as `Client.table`."""
        from pubsub.client.tables import AsyncTable, open_table  # noqa: PLC0415 - few clients need it.

        return open_table(self._session, topic, AsyncTable, bytes_max)
