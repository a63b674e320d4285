"""A session's connections to its proxies: messages out, by the token of their answer, and answers in."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pubsub.client.core.core import ClientCore
from pubsub.client.core.turned_away import let_in, refused
from pubsub.client.refusals import Asker
from pubsub.errors import DecodeError, TooLarge
from pubsub.messenger import CurveClient, Messenger, Refusal
from pubsub.messenger.peer import Peer
from pubsub.protocol import Message, Outcome, Status, decode, encode

if TYPE_CHECKING:
    from pubsub.security.opening import ClientKeys

_NOBODY: Final = "key"
"""Why it is denied where nobody is authorized by the name that our key had when it entered (`security.access.Why.KEY`).

Who is connected stays who it was: where its line was mended since, it is let in by another connection only.
"""

NEWS_SECONDS: Final = 2.0
"""A proxy that refuses for so long while another one does not is written down, once."""

_log: Final = logging.getLogger("pubsub.client")


class Wire:
    """Connections to all proxies.

    Args:
        name: the client ID, for the log.
        messenger: connects.
        proxies: their addresses.
        counters: where what cannot be decoded is counted.
        keys: the client's and the proxies'; None: there are none.

    Attributes:
        inbox: answers that came, with the tokens of what they answer.
        doors: of proxies, by their index, why they do not let us in, each time that they do not; "" when they do again.

    Raises:
        ConfigurationError: that is not an address.
    """

    def __init__(
        self,
        name: str,
        messenger: Messenger,
        proxies: Sequence[str],
        counters: dict[str, int],
        keys: ClientKeys | None = None,
    ) -> None:
        self._name, self._messenger, self._counters = name, messenger, counters
        self.inbox: deque[tuple[int, Status]] = deque()
        self.doors: deque[tuple[int, str]] = deque()
        self._registered: dict[int, int] = {}
        self._refusing: dict[int, tuple[str, float]] = {}
        """What each proxy that refuses says, and since when; when that was written down, it is no news any more."""
        self._peers = [self._connect(proxy, index, keys) for index, proxy in enumerate(proxies)]

    def _connect(self, proxy: str, index: int, keys: ClientKeys | None) -> Peer:
        asker = Asker(self._name, None if keys is None else keys.pair)
        expected = () if keys is None else keys.expected[index]
        curve = None if keys is None else CurveClient(keys.pair, expected)

        def told(refusal: Refusal | None) -> None:
            text = "" if refusal is None else asker.sentence(refusal, proxy, expected)
            self.doors.append((index, text))

        return self._messenger.connect(proxy, curve=curve, told=told)

    def knock(self) -> None:
        """Have proxies that refuse asked again at once."""
        for peer in self._peers:
            self._messenger.hurry(peer)

    def look_at_doors(self, core: ClientCore, now: float) -> None:
        """Have the core know which proxies refused us, or let us in again. The session's lock is held."""
        while self.doors:
            proxy, text = self.doors.popleft()
            if not text:
                self._refusing.pop(proxy, None)
                let_in(core, proxy)
                continue
            if self._refusing.get(proxy, ("", 0.0))[0] != text:
                self._refusing[proxy] = text, now
            refused(core, proxy, text, now)
            # Who was authorized just now is refused until each proxy has looked. Where all refuse, the calls say so.
            if now - self._refusing[proxy][1] >= NEWS_SECONDS and not core.doors.closed:
                self._refusing[proxy] = text, float("inf")
                _log.warning("client %s: %s", self._name, text)

    def send(self, token: int, proxy: int, message: Message) -> None:
        """Send a message to a proxy, whose answer comes in under `token`."""
        head, body = encode(message)
        try:
            self._registered[token] = self._messenger.send(
                self._peers[proxy], (head, body) if len(body) else head, partial(self._answered, token), retry=False
            )
        except TooLarge as error:  # The Messenger is at one of its limits; the next try may find room.
            _log.warning("client %s: %s", self._name, error)

    def forget(self, tokens: list[int]) -> None:
        """Answers to these are of no use any more; the list is emptied."""
        for token in tokens:
            if (registered := self._registered.pop(token, None)) is not None:
                self._messenger.forget(registered)
        tokens.clear()

    def _answered(self, token: int, peer: Peer, contents: Any, frames: Sequence[Any]) -> None:
        self._registered.pop(token, None)
        try:
            status = decode(contents, frames[0] if frames else None)
        except DecodeError as error:
            self._counters["undecodable"] += 1
            _log.warning("client %s: an answer is dropped: %s", self._name, error)
            return
        if isinstance(status, Status):
            self.inbox.append((token, status))
            if status.outcome is Outcome.DENIED and status.reason == _NOBODY:
                self._messenger.hurry(peer, anew=True)
