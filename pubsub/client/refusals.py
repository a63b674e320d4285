"""What is said where a proxy refuses a key, or denies a request: what is wrong, and what to do (docs/security.md).

The sentences are the same for a client, an operator's command and a query of Spark. What differs is how a person names
keys to each of them; an `Asker` has that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pubsub.errors import NotAllowed, NotLetIn
from pubsub.messenger import Refusal
from pubsub.protocol.messages import Get, Publish, Read, Report, Stage, Status, Subscribe, Unsubscribe, denial

if TYPE_CHECKING:
    from pubsub.security.pairs import Pair

Request = Subscribe | Unsubscribe | Get | Read | Stage | Publish | Report

_WORDS: Final = {Subscribe: "subscribe", Unsubscribe: "unsubscribe", Get: "acknowledge", Read: "read"}

_SHOWN: Final = 11
"""Characters of a key by which a person tells it from others."""


@dataclass(frozen=True, slots=True)
class Asker:
    """The sender of requests, and how a person names keys to it.

    Attributes:
        client: its client ID; ID where a person has to choose one.
        pair: its key pair; None: it has none.
        makes_key: what to do where a proxy wants a key; "": make one for this client.
        names_key: where it is told the proxies' keys.
        names_client: what to do where the key is of another client.
        rights: that the line which authorizes its key needs.
        afterwards: what to do once that is mended.
    """

    client: str = "ID"
    pair: Pair | None = None
    makes_key: str = ""
    names_key: str = "in the proxies file"
    names_client: str = "ask as the client whose key it is"
    rights: str = ""
    afterwards: str = ""

    @property
    def authorize(self) -> str:
        """The command that lets its key in."""
        return f"pubsub keys authorize client {self.client} {self._key}{self.rights}"

    @property
    def _key(self) -> str:
        from pubsub.security.keys import format_public  # noqa: PLC0415 - without keys nothing of it is needed.

        return format_public(self.pair.public) if self.pair else "pk_…"

    def sentence(self, refusal: Refusal, proxy: str, expected: Sequence[bytes] = ()) -> str:
        """Why a proxy refuses it, in one line.

        Args:
            refusal: how.
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

    def not_let_in(self, sentences: Sequence[str]) -> NotLetIn:
        """All proxies refuse it, as an error."""
        return NotLetIn("; ".join(sentences) + self.afterwards)

    def denied(self, request: Request, status: Status) -> NotAllowed:
        """What a proxy denied, as an error that says what to do.

        Args:
            request: what was asked.
            status: the answer, with the proxy's sentence.
        """
        from pubsub.security.access import Why  # noqa: PLC0415

        topic = getattr(request, "topic", "")
        if status.reason == Why.SENDER:
            remedy = self.names_client
        elif status.reason == Why.KEY:
            remedy = f"to let it in: {self.authorize}"
        else:
            remedy = f"its line in the file authorized needs {_rights(request)}"
        said = denial(status) or f"client {request.sender} may not {word(request)} {topic}".rstrip()
        return NotAllowed(word(request), topic, said, remedy + self.afterwards)


def word(request: Request) -> str:
    """What a request does, for a person."""
    return _WORDS.get(type(request), type(request).__name__.lower())


def _rights(request: Request) -> str:
    """The rights that a request needs, as the file `authorized` has them."""
    if isinstance(request, Report):
        return "status"
    from pubsub.security.patterns import Pattern  # noqa: PLC0415

    topic = str(Pattern((request.topic,)))
    if isinstance(request, Stage | Publish):
        return f"put={topic}"
    return f"get={topic} names={request.name}" if request.name else f"get={topic}"
