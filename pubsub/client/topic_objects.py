"""Create a topic, and purge its stored messages."""

from __future__ import annotations

import time
from collections.abc import Mapping
from secrets import token_hex
from typing import Final

from pubsub.client.requests import NoAnswer, Proxies
from pubsub.client.topic_settings import TopicSettings, ask, check_settings, parse_settings
from pubsub.errors import NotNow, Unavailable
from pubsub.protocol.messages import Configure, Outcome, Settings
from pubsub.protocol.names import check_new_topic
from pubsub.protocol.topic_settings import encode_settings, format_drop, format_keep, parse_drop, parse_keep

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
        super().__init__(
            f"topic {present.topic} exists with keep={present.keep} drop={present.drop};"
            f" pubsub topic set {present.topic} changes them"
        )


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


def _same(present: TopicSettings, wanted: Mapping[str, str]) -> bool:
    keep, drop = format_keep(parse_keep(wanted.get("keep", ""))), format_drop(parse_drop(wanted.get("drop", "")))
    return (present.keep, present.drop) == (keep, drop)


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
