"""The calls of a blocking client that configure, create and purge topics; `Client` inherits them."""

from __future__ import annotations

from pubsub.client.service_calls import ServiceCalls
from pubsub.client.topic_objects import Purged
from pubsub.client.topic_settings import TopicSettings


class TopicOperations(ServiceCalls):
    """Calls about whole topics, for operators."""

    def create_topic(self, topic: str, *, keep: str | None = None, drop: str | None = None) -> TopicSettings:
        """Create a topic, and return its settings when every proxy that answers knows it.

        Args:
            topic: as for `put`.
            keep, drop: as for `configure`; None: the default.

        Raises:
            InvalidName, CallerError: the topic or a value is not allowed; nothing was sent.
            NotNow: the topic exists with other settings. With the same settings the call succeeds.
            NotAllowed, KeyRefused, Unavailable, Refused: as `configure`.
        """
        return self._topic_objects.create(topic, keep, drop)

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
        self, topic: str, *, keep: str | None = None, drop: str | None = None, base: str | None = None
    ) -> TopicSettings:
        """Change the settings of a topic, and return those in force. A topic that does not exist is created.

        Args:
            topic: as for `put`.
            keep: how much stays although every subscriber has acknowledged it: `none`, `ever`, or an age (`7d`), bytes
                (`10GiB`) and a number (`1000 records`), separated by commas. Any of several amounts lets a message go.
            drop: beyond what a message goes although a subscriber has not acknowledged it: `never`, an age or bytes.
                The subscriber gets `DataLoss`. It takes nothing that `keep` still keeps.
            base: change these settings only if they have this version; None: the present ones.

        Raises:
            InvalidName, CallerError: the topic or a value is not allowed; nothing was sent.
            NotNow: the settings have another version than `base`.
            NotAllowed, KeyRefused: as `put`; this needs the right to operate.
            Unavailable: no answer came in time; the change may still be in force. Repeat it.
            Refused: a proxy or server has a release without settings.
        """
        return self._topic_settings.configure(topic, keep, drop, base)
