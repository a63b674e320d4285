"""Delete a topic: its number goes to every proxy (docs/explanation/deletion.md, UD1 and UD6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pubsub.client.requests import NoAnswer, Proxies, reason_of
from pubsub.client.topic_settings import UPGRADE, ask
from pubsub.errors import DecodeError, KeyRefused, NotAllowed, NotKnown, NotNow, Refused, Unavailable
from pubsub.protocol.deletions import Delete
from pubsub.protocol.messages import Outcome, Status
from pubsub.protocol.purges import Found, decode_found
from pubsub.protocol.topic_objects import Purge

FORCED_SECONDS: Final = 2.0
"""Longest wait for the figures of a topic that is deleted by force."""

NOT_YET: Final = "nothing is deleted yet"
HALF: Final = "the topic is being deleted: repeat the call to finish that"


class TopicHasSubscribers(NotNow):
    """The topic to delete has subscribers.

    Attributes:
        subscribers: number of clients and named subscriptions that have not ended.
    """

    def __init__(self, topic: str, subscribers: int) -> None:
        self.subscribers = subscribers
        word = "subscriber" if subscribers == 1 else "subscribers"
        super().__init__(
            f"topic {topic} has {subscribers} {word}, so it is not deleted; end them with pubsub topic unsubscribe, or"
            " delete with --force (force=True)"
        )


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A deleted topic.

    Attributes:
        topic: its name.
        records: its stored messages; None if that is not known: its server did not answer, or an earlier call deleted
            it.
        subscribers: its subscribers, which lose messages that they have not acknowledged; None as above.
    """

    topic: str
    records: int | None
    subscribers: int | None


def find_deletion(proxies: Proxies, sender: str, topic: str, *, force: bool) -> Found | None:
    """Return the figures of a topic to delete; None if there is no such topic, or by force without an answer.

    Raises:
        TopicHasSubscribers: it has subscribers, and `force` is False.
        Unavailable: no answer of the sole owner in time.
    """
    seconds = proxies.timeout_seconds
    try:
        if force:
            proxies.timeout_seconds = min(seconds, FORCED_SECONDS)
        status = ask(proxies, Purge(sender, topic, 1))
    except Unavailable:
        if not force:
            raise
        return None
    finally:
        proxies.timeout_seconds = seconds
    if status.outcome is Outcome.UNKNOWN:
        return None
    try:
        found = decode_found(bytes(status.body))
    except DecodeError as error:
        raise Refused("delete", topic, f"{error.reason}; {UPGRADE}") from None
    if found.subscribers is None:
        raise Refused("delete", topic, UPGRADE)
    if found.subscribers and not force:
        raise TopicHasSubscribers(topic, found.subscribers)
    return found


def delete(proxies: Proxies, sender: str, topic: str, found: Found | None, *, force: bool) -> TopicDeleted:
    """Delete a topic that `find_deletion` has looked at; a topic that is deleted already is no error.

    Raises:
        NotKnown: there is no such topic, and there was none.
        Unavailable: a proxy or a live server has not stored the deletion in time; the text says if it has begun.
    """
    answers = _ask_all(proxies, Delete(sender, topic), NOT_YET)
    last = max(status.number for status in answers)
    if found is None and not force:
        if not last:
            raise NotKnown(f"topic {topic} does not exist; pubsub topic list lists the topics")
        number = last  # An earlier call may not have reached every proxy.
    else:
        number = max(last + 1, *(status.stamp for status in answers))
    for _ in range(2):
        answers = _ask_all(proxies, Delete(sender, topic, number), HALF)
        later = max((status.number for status in answers if status.outcome is Outcome.SUPERSEDED), default=0)
        if not later:
            break
        number = later  # Another operator deletes the topic at the same time.
    return TopicDeleted(topic, found.records if found else None, found.subscribers if found else None)


def _ask_all(proxies: Proxies, request: Delete, state: str) -> list[Status]:
    """Return the answers of all proxies.

    Raises:
        Unavailable, NotAllowed, KeyRefused, Refused: one of them gave none that counts.
    """
    wanted = [(address, request) for address in proxies.addresses]
    answers = proxies.ask_each(wanted, proxies.timeout_seconds)
    found = []
    for address, answer in zip(proxies.addresses, answers, strict=True):
        if isinstance(answer, NoAnswer) and answer.error is NotAllowed:
            raise NotAllowed("delete", request.topic, answer.reason, "its line in the file authorized needs operate")
        if isinstance(answer, NoAnswer) and answer.error is KeyRefused:
            raise proxies.asker.key_refused([answer.reason])
        if isinstance(answer, Status) and answer.outcome is Outcome.REFUSED:
            reason = answer.reason.replace("_", " ")
            remedy = f"; {UPGRADE}" if "not a request" in reason or "no message is named" in reason else ""
            raise Refused("delete", request.topic, f"proxy {address}: {reason}{remedy}")
        if isinstance(answer, NoAnswer) or answer.outcome not in {Outcome.SUCCESS, Outcome.SUPERSEDED}:
            reason = f"proxy {address}: {reason_of(answer)}; {state}"
            raise Unavailable("delete", request.topic, proxies.timeout_seconds, reason)
        found.append(answer)
    return found
