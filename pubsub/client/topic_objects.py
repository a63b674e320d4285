"""Create a topic, purge its stored messages, or delete it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from pubsub.client.requests import NoAnswer, Proxies
from pubsub.client.topic_deletion import TopicDeleted, delete, find_deletion
from pubsub.client.topic_list import TopicFacts, list_topics
from pubsub.client.topic_settings import (
    UPGRADE,
    SettingTexts,
    TopicSettings,
    all_settings,
    ask,
    check_settings,
    parse_settings,
    proxies_of,
)
from pubsub.errors import DecodeError, NotKnown, NotNow, Refused, Unavailable
from pubsub.protocol.messages import Configure, Outcome, Settings, Status
from pubsub.protocol.names import check_new_topic
from pubsub.protocol.purges import Found, decode_found, encode_places
from pubsub.protocol.topic_objects import Purge
from pubsub.protocol.topic_settings import PARSERS, encode_settings, format_drop, format_keep

if TYPE_CHECKING:
    from pubsub.client.session import Session

LOOK_SECONDS: Final = 0.05
"""Pause between two looks whether every proxy knows a new topic."""

SILENT_SECONDS: Final = 1.0
"""Longest wait for a proxy that does not answer. A proxy that starts or returns learns the topic before it refuses."""


class TopicExists(NotNow):
    """The topic to create exists with other settings.

    Attributes:
        present: its settings.
    """

    def __init__(self, present: TopicSettings) -> None:
        self.present = present
        super().__init__(f"topic {present.topic} exists with {present}; pubsub topic set {present.topic} changes them")


def check_creation(topic: str, values: Mapping[str, str | None]) -> None:
    """Check the name of a new topic and the texts of its settings.

    Raises:
        InvalidName: the name is not allowed, or reserved.
        CallerError: a text has another form.
    """
    check_new_topic(topic)
    check_settings(topic, values)


def create(proxies: Proxies, sender: str, topic: str, values: Mapping[str, str | None]) -> tuple[TopicSettings, bool]:
    """Create a topic, and wait until each proxy that answers knows it. `check_creation` has accepted the arguments.

    Args:
        values: settings by name; None: the default.

    Returns:
        The settings in force, and True if the topic is new. False: it existed with the same settings.

    Raises:
        TopicExists: it exists with other settings.
        Unavailable: no answer in time, or a proxy does not know the topic yet. The topic may exist; repeat the call.
    """
    wanted = {name: value or "" for name, value in values.items()}
    request = Configure(sender, topic, token_hex(8), create=1, values=encode_settings(wanted))
    status = ask(proxies, request)
    present = parse_settings(topic, status)
    if status.outcome is Outcome.SUPERSEDED and (present.conflict or not _same(present, wanted)):
        raise TopicExists(present)
    _await_proxies(proxies, sender, topic)
    return present, status.outcome is not Outcome.SUPERSEDED


@dataclass(frozen=True, slots=True)
class Purged:
    """The messages that a purge of a topic deleted.

    Attributes:
        topic: its name.
        records: deleted messages.
        unread: those of them that a subscriber had not acknowledged; its next get raises `DataLoss`.
    """

    topic: str
    records: int
    unread: int


def find_purge(proxies: Proxies, sender: str, topic: str, *, unread: bool) -> Found:
    """Return the places up to which a purge now deletes messages, and their number. Nothing is deleted.

    Raises:
        NotKnown: there is no such topic.
    """
    return _found(topic, ask(proxies, Purge(sender, topic, int(unread))))


def purge(proxies: Proxies, sender: str, topic: str, found: Found, *, unread: bool) -> Purged:
    """Delete the messages that `find_purge` has found. A repeat deletes no later message.

    Raises:
        NotKnown: there is no such topic any more.
        Unavailable: no answer in time; the messages may be deleted.
    """
    _found(topic, ask(proxies, Purge(sender, topic, int(unread), places=encode_places(found.places))))
    return Purged(topic, found.records, found.unread)


def _found(topic: str, status: Status) -> Found:
    if status.outcome is Outcome.UNKNOWN:
        raise NotKnown(f"topic {topic} does not exist; pubsub topic list lists the topics")
    try:
        return decode_found(bytes(status.body))
    except DecodeError as error:
        raise Refused("purge", topic, f"{error.reason}; {UPGRADE}") from None


class TopicCalls:
    """The calls of one client about whole topics.

    Args:
        session: names the proxies and the keys.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def create(self, topic: str, given: SettingTexts) -> TopicSettings:
        values = all_settings(given, "create_topic")
        check_creation(topic, values)
        with proxies_of(self._session) as proxies:
            return create(proxies, self._session.name, topic, values)[0]

    def purge(self, topic: str, *, unread: bool) -> Purged:
        check_settings(topic, {})
        with proxies_of(self._session) as proxies:
            name = self._session.name
            return purge(proxies, name, topic, find_purge(proxies, name, topic, unread=unread), unread=unread)

    def topics(self) -> list[TopicFacts]:
        with proxies_of(self._session) as proxies:
            return list_topics(proxies, self._session.name)

    def delete(self, topic: str, *, force: bool) -> TopicDeleted:
        check_settings(topic, {})
        with proxies_of(self._session) as proxies:
            name = self._session.name
            found = find_deletion(proxies, name, topic, force=force)
            return delete(proxies, name, topic, found, force=force)


def _same(present: TopicSettings, wanted: Mapping[str, str]) -> bool:
    """Return True if a topic has the wanted values; where none is wanted, if a default holds there, too."""
    for name, text in wanted.items():
        value = (format_keep if name == "keep" else format_drop)(PARSERS[name](text)) if text else ""
        if value != present.own.get(name, "") and not (text and value == getattr(present, name)):
            return False
    return True


def _await_proxies(proxies: Proxies, sender: str, topic: str) -> None:
    """Wait until no proxy answers that it does not know the topic. Otherwise it could refuse a put to the topic."""
    until = time.monotonic() + proxies.timeout_seconds
    left = list(proxies.addresses)
    while True:
        seconds = min(SILENT_SECONDS, max(LOOK_SECONDS, until - time.monotonic()))
        answers = proxies.ask_each([(address, Settings(sender, topic)) for address in left], seconds)
        left = [
            address
            for address, answer in zip(left, answers, strict=True)
            if not isinstance(answer, NoAnswer) and answer.outcome is Outcome.UNKNOWN
        ]
        if not left:
            return
        if time.monotonic() >= until:
            raise Unavailable("create", topic, proxies.timeout_seconds, f"{', '.join(left)} does not know it yet")
        time.sleep(LOOK_SECONDS)
