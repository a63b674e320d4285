"""Add calls about whole topics to the client: tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub.client.group_operations import GroupOperations

if TYPE_CHECKING:
    from pubsub.client.tables import Table


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
