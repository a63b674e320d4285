"""Describe refusals of a key and denials of a request: the cause and the remedy (docs/security.md).

The sentences are the same for a client, an operator's command and a Spark query. The ways to name keys differ, and an
`Asker` has those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pubsub.errors import KeyRefused, NotAllowed
from pubsub.messenger import Refusal
from pubsub.protocol.denials import denial
from pubsub.protocol.groups import Describe, Group
from pubsub.protocol.messages import Configure, Get, Read, Report, Settings, Status, Subscribe, Unsubscribe
from pubsub.protocol.sinks import Publish, Stage
from pubsub.protocol.topic_objects import NO_SUCH_TOPIC, Purge

if TYPE_CHECKING:
    from pubsub.security.pairs import Pair

Request = (
    Subscribe | Unsubscribe | Configure | Settings | Purge | Describe | Group | Get | Read | Stage | Publish | Report
)

_WORDS: Final = {
    Subscribe: "subscribe",
    Unsubscribe: "unsubscribe",
    Settings: "read settings",
    Get: "acknowledge",
    Read: "read",
    Describe: "look at groups of",
    Group: "act on groups of",
}

_SHOWN: Final = 11
"""Characters of a key that are enough to recognise it."""


@dataclass(frozen=True, slots=True)
class Asker:
    """The sender of requests, with its ways to name keys in texts.

    Attributes:
        client: its client ID; ID if the user must choose one.
        pair: its key pair; None: it has none.
        makes_key: remedy if a proxy requires a key; "": make one for this client.
        names_key: place where the proxies' keys are given.
        names_client: remedy if the key belongs to another client.
        rights: rights that its line in the access list needs.
        afterwards: next step after the remedy.
    """

    client: str = "ID"
    pair: Pair | None = None
    makes_key: str = ""
    names_key: str = "in the proxies file"
    names_client: str = "use the client ID that this key belongs to"
    rights: str = ""
    afterwards: str = ""

    @property
    def authorize(self) -> str:
        """The command that authorizes its key."""
        return f"pubsub keys authorize client {self.client} {self._key}{self.rights}"

    @property
    def _key(self) -> str:
        from pubsub.security.keys import format_public  # noqa: PLC0415 - only a client with keys needs it.

        return format_public(self.pair.public) if self.pair else "pk_…"

    def sentence(self, refusal: Refusal, proxy: str, expected: Sequence[bytes] = ()) -> str:
        """Describe the refusal by a proxy in one line.

        Args:
            refusal: kind of refusal.
            proxy: the proxy's address.
            expected: the keys that the proxy may have.
        """
        if self.pair is None or refusal is Refusal.KEY_WANTED:
            return f"{proxy} wants a key: {self.makes_key or f'pubsub keys new client {self.client}'}"
        if refusal is Refusal.KEY_UNKNOWN:
            shown = f"{self._key[:_SHOWN]}…" + (f" of client {self.client}" if self.client != "ID" else "")
            return f"proxy {proxy} does not know the key {shown}: {self.authorize}"
        from pubsub.security.keys import format_public  # noqa: PLC0415

        keys = ",".join(map(format_public, expected))
        if refusal is Refusal.KEY_MISSING:
            return f"{proxy} has no key; one is named {self.names_key}, {keys}: not used"
        return f"{proxy} closed the handshake: its key is not the one {self.names_key}, {keys}"

    def key_refused(self, sentences: Sequence[str]) -> KeyRefused:
        """Build the error for refusals by all proxies."""
        return KeyRefused("; ".join(sentences) + self.afterwards)

    def denied(self, request: Request, status: Status) -> NotAllowed:
        """Build the error for a denied request, with the remedy.

        Args:
            request: the request.
            status: the answer, with the proxy's sentence.
        """
        from pubsub.security.access import Why  # noqa: PLC0415

        topic = getattr(request, "topic", "")
        if status.reason == Why.SENDER:
            remedy = self.names_client
        elif status.reason == NO_SUCH_TOPIC:
            remedy = ""
        elif status.reason == Why.KEY:
            remedy = f"to authorize the key: {self.authorize}"
        else:
            remedy = f"its line in the file authorized needs {_rights(request)}"
        said = denial(status) or f"client {request.sender} may not {word(request)} {topic}".rstrip()
        return NotAllowed(word(request), topic, said, remedy + self.afterwards)


def word(request: Request) -> str:
    """Return the verb of a request, for a person."""
    return _WORDS.get(type(request), type(request).__name__.lower())


def _rights(request: Request) -> str:
    """Return the rights that a request needs, as the file `authorized` has them."""
    if isinstance(request, Report):
        return "status"
    if isinstance(request, Configure | Purge | Group):
        return "operate"
    from pubsub.security.patterns import Pattern  # noqa: PLC0415

    topic = str(Pattern((request.topic,)))
    if isinstance(request, Stage | Publish):
        return f"put={topic}"
    name = "" if isinstance(request, Settings | Describe) else request.name
    return f"get={topic} names={name}" if name else f"get={topic}"
