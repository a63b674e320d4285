"""What a query is told where its key has no right, or no proxy lets it in: what happened, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pubsub.errors import NotAllowed, NotLetIn
from pubsub.messenger import Refusal
from pubsub.protocol import Publish, Read, Report, Stage, Status
from pubsub.protocol.messages import Get, Subscribe, Unsubscribe, denial
from pubsub.security.access import Why
from pubsub.security.keys import format_public
from pubsub.security.pairs import Pair
from pubsub.security.patterns import Pattern

Request = Subscribe | Unsubscribe | Get | Read | Stage | Publish | Report

_WORDS: Final = {Subscribe: "subscribe", Unsubscribe: "unsubscribe", Get: "acknowledge", Read: "read"}

AGAIN: Final = "then start it again, and a stream goes on where it was"


def word(request: Request) -> str:
    """What a request does, for a person."""
    return _WORDS.get(type(request), type(request).__name__.lower())


def turned_away(refusals: Mapping[str, Refusal], client: str, pair: Pair | None) -> str:
    """Why proxies refuse a connection, and what to do.

    Args:
        refusals: what each said, by its address.
        client: the ID of who asked.
        pair: its key; None: it has none.
    """
    proxies: dict[Refusal, list[str]] = {}
    for proxy, refusal in refusals.items():
        proxies.setdefault(refusal, []).append(proxy)
    key = format_public(pair.public) if pair else "pk_…"
    said = (_SAID[refusal].format(proxy=" and ".join(its), client=client, key=key) for refusal, its in proxies.items())
    return "; ".join(said)


_SAID: Final = {
    Refusal.KEY_UNKNOWN: "{proxy} does not let its key in: pubsub keys authorize client {client} {key}",
    Refusal.KEY_WANTED: "{proxy} wants a key: pubsub keys new client {client}, and name its file by option keyFile"
    " (--key of a pipeline)",
    Refusal.KEY_MISSING: "{proxy} has no key, though one is named for it, and is not spoken to",
    Refusal.KEY_DIFFERS: "{proxy} does not have the key that is named for it, by option proxiesFile or proxyKeys"
    " (--proxy-key of a pipeline)",
}


def not_let_in(refusals: Mapping[str, Refusal], client: str, pair: Pair | None) -> NotLetIn:
    """All proxies refuse the connection, as an error; arguments as of `turned_away`."""
    said = turned_away(refusals, client, pair)
    return NotLetIn(f"no proxy lets client {client} in: {said}; {AGAIN}")


def denied(request: Request, status: Status, pair: Pair | None) -> NotAllowed:
    """What a proxy denied, as an error that says what to do: a query that is started again goes on where it was.

    Args:
        request: what was asked.
        status: the answer, with the proxy's sentence.
        pair: the key by which it was asked.
    """
    topic = getattr(request, "topic", "")
    said = denial(status)
    if status.reason == Why.SENDER:
        remedy = "name the one whose key it is by option clientId (--client of a pipeline)"
    elif status.reason == Why.KEY:
        key = format_public(pair.public) if pair else "pk_…"
        remedy = f"to let it in: pubsub keys authorize client {request.sender} {key}"
    else:
        remedy = f"its line in the file authorized needs {_rights(request)}"
    said = said or f"client {request.sender} may not {word(request)} {topic}".rstrip()
    return NotAllowed(word(request), topic, said, f"{remedy}; {AGAIN}")


def _rights(request: Request) -> str:
    """The rights that a request needs, as the file `authorized` has them."""
    if isinstance(request, Report):
        return "status"
    topic = str(Pattern((request.topic,)))
    if isinstance(request, Stage | Publish):
        return f"put={topic}"
    return f"get={topic} names={request.name}" if request.name else f"get={topic}"
