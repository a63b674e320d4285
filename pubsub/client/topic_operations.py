"""The calls of a blocking client that create, purge and delete topics; `Client` inherits them."""

from __future__ import annotations

from typing import Unpack

from pubsub.client.service_calls import ServiceCalls
from pubsub.client.topic_deletion import TopicDeleted
from pubsub.client.topic_list import TopicFacts
from pubsub.client.topic_objects import Purged
from pubsub.client.topic_settings import SettingTexts, TopicSettings


class TopicOperations(ServiceCalls):
    """Calls about whole topics, for operators."""

    def topics(self) -> list[TopicFacts]:
        """Return the topics of the cluster in the order of their names, as `pubsub topic list` shows them.

        A change of the last quarter of a second may be missing. The key needs the right to see the status.

        Raises:
            NotAllowed, KeyRefused, Unavailable: no proxy answers.
        """
        return self._topic_objects.topics()

    def create_topic(self, topic: str, **values: Unpack[SettingTexts]) -> TopicSettings:
        """Create a topic, and return its settings when every proxy that answers knows it.

        Args:
            topic: as for `put`.
            values: `keep`, `drop` and `expire` as for `configure`; None: the default.

        Raises:
            InvalidName, CallerError: the topic or a value is not allowed; nothing was sent.
            NotNow: the topic exists with other settings. With the same settings the call succeeds.
            NotAllowed, KeyRefused, Unavailable, Refused: as `configure`.
        """
        return self._topic_objects.create(topic, values)

    def purge_topic(self, topic: str, *, unread: bool = False) -> Purged:
        """Delete the stored messages of a topic that every subscriber has acknowledged, and return their number.

        Args:
            topic: a topic that exists.
            unread: delete the other messages, too. A subscriber that has not acknowledged them gets `DataLoss`.

        Raises:
            NotKnown: there is no such topic.
            InvalidName, CallerError, NotAllowed, KeyRefused, Unavailable, Refused: as `configure`.
        """
        return self._topic_objects.purge(topic, unread=unread)

    def delete_topic(self, topic: str, *, force: bool = False) -> TopicDeleted:
        """Delete a topic with all its messages, settings and subscriptions.

        The call returns when every proxy and every live server has stored the deletion. A repeat of a call that ended
        with `Unavailable` finishes the deletion, and is no error.

        Args:
            topic: a topic that exists.
            force: delete a topic that has subscribers, or a server that does not answer. A subscriber gets `DataLoss`.

        Raises:
            NotNow: the topic has subscribers, and `force` is False.
            NotKnown: there is no such topic, and none was deleted.
            Unavailable: a proxy or a live server does not answer in time; the text says if the deletion has begun.
            InvalidName, CallerError, NotAllowed, KeyRefused, Refused: as `configure`.
        """
        return self._topic_objects.delete(topic, force=force)
