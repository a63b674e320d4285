"""Handle requests that the service refuses permanently or denies to this client.

A denied request ends at once, and its state is kept: a put stays in the outbox, and a subscription keeps its position
and its received records. The client does not repeat the request by itself. The next call does, because the client may
have the right by then.

The rule is docs/explanation/protocol.md, V7.
"""

from __future__ import annotations

from shlex import quote
from typing import Final

from pubsub.client.core.refusing_proxies import RefusingProxies
from pubsub.client.core.subscription import Subscription
from pubsub.client.errors import StartGone
from pubsub.errors import NotAllowed, PubsubError, Refused
from pubsub.protocol import Outcome, Status, format_position
from pubsub.protocol.denials import denial
from pubsub.protocol.topic_objects import NO_SUCH_TOPIC

_SPOKEN: Final = {
    "put": "put to",
    "get": "get from",
    "subscribe": "subscribe to",
    "unsubscribe": "unsubscribe from",
}


def refusal(client: str, operation: str, topic: str, status: Status) -> Refused | NotAllowed | StartGone:
    """Build the error for a refused or denied request, or for a start that is gone.

    Args:
        client: the client ID.
        operation, topic: of the request.
        status: the answer. The body of a denial is a sentence for a person.
    """
    if status.outcome is Outcome.REFUSED:
        return Refused(operation, topic, status.reason.replace("_", " "))
    if status.outcome is Outcome.GONE:
        return StartGone(topic, oldest_of(status))
    return _not_allowed(client, operation, topic, status)


def oldest_of(status: Status) -> str:
    """Return the position of the oldest message that an answer *gone* names; "" if it names none."""
    if status.first is not None or status.position is None:
        return format_position(status.first) if status.first else ""
    log, before = status.position  # The place before the first message, as in a cursor.
    return format_position((log, before + 1))


def deny(sub: Subscription, error: PubsubError) -> None:
    """Stop a denied request, and keep the subscription's records and its position at the service."""
    sub.failure = error
    sub.intent.stop_asking()
    sub.timed_out()


def ask_again(refusing: RefusingProxies, sub: Subscription) -> None:
    """Allow a new request, for a call, after a denial or a refusal by all proxies."""
    if refusing.closed:
        refusing.called = True
    if isinstance(sub.failure, NotAllowed):
        sub.failure = None


def _not_allowed(client: str, operation: str, topic: str, status: Status) -> NotAllowed:
    sentence = denial(status) or f"client {client} may not {_SPOKEN[operation]} {topic}"
    remedy, command = "", f"pubsub client {client}"
    if operation == "put" and status.reason == NO_SUCH_TOPIC:
        remedy = f"the put is kept: {command} flush sends it then, and {command} discard {quote(topic)} drops it"
    elif operation == "put":
        remedy = f"the put is kept: ask for the right, then {command} flush, or discard {quote(topic)}"
    return NotAllowed(operation, topic, sentence, remedy)
