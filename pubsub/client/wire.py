"""Connect a session to its proxies: send messages, and queue answers by their tokens."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pubsub.client.core.core import ClientCore
from pubsub.client.core.proxy_refusals import accepted, refused
from pubsub.client.refusals import Asker
from pubsub.errors import DecodeError, TooLarge
from pubsub.messenger import CurveClient, Messenger, Refusal
from pubsub.messenger.peer import Peer
from pubsub.protocol import Message, Outcome, Status, decode, encode

if TYPE_CHECKING:
    from pubsub.security.process_keys import ClientKeys

_NOBODY: Final = "key"
"""Reason of a denial if the key was accepted at the connection but is no longer authorized (`security.access.Why.KEY`).

A connection keeps its identity: after a change of the access list only a new connection gets the new rights.
"""

NEWS_SECONDS: Final = 2.0
"""Time after which the refusal of one proxy is logged, once, if another proxy accepts."""

_log: Final = logging.getLogger("pubsub.client")


class Wire:
    """Connections to all proxies.

    Args:
        name: the client ID, for the log.
        messenger: makes the connections.
        proxies: their addresses.
        counters: counts undecodable answers.
        keys: the client's and the proxies' keys; None: no keys.

    Attributes:
        inbox: answers with their tokens.
        doors: refusals of proxies, by index, with their text; "" when a proxy accepts again.

    Raises:
        ConfigurationError: an address is not valid.
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
        self.refusing: deque[tuple[int, str]] = deque()
        self._registered: dict[int, int] = {}
        self._refusing: dict[int, tuple[str, float]] = {}
        """Text and first time of each proxy's refusal; infinity as the time after it was logged."""
        self._peers = [self._connect(proxy, index, keys) for index, proxy in enumerate(proxies)]

    def _connect(self, proxy: str, index: int, keys: ClientKeys | None) -> Peer:
        asker = Asker(self._name, None if keys is None else keys.pair)
        expected = () if keys is None else keys.expected[index]
        curve = None if keys is None else CurveClient(keys.pair, expected)

        def told(refusal: Refusal | None) -> None:
            text = "" if refusal is None else asker.sentence(refusal, proxy, expected)
            self.refusing.append((index, text))

        return self._messenger.connect(proxy, curve=curve, told=told)

    def retry(self) -> None:
        """Ask refusing proxies again at once."""
        for peer in self._peers:
            self._messenger.hurry(peer)

    def receive_refusals(self, core: ClientCore, now: float) -> None:
        """Pass refusals and acceptances of proxies to the core. The session's lock is held."""
        while self.refusing:
            proxy, text = self.refusing.popleft()
            if not text:
                self._refusing.pop(proxy, None)
                accepted(core, proxy)
                continue
            if self._refusing.get(proxy, ("", 0.0))[0] != text:
                self._refusing[proxy] = text, now
            refused(core, proxy, text, now)
            # A client that was just authorized is refused until each proxy has read its access list, so wait before
            # logging. If all refuse, the calls raise it.
            if now - self._refusing[proxy][1] >= NEWS_SECONDS and not core.refusing.closed:
                self._refusing[proxy] = text, float("inf")
                _log.warning("client %s: %s", self._name, text)

    def send(self, token: int, proxy: int, message: Message) -> None:
        """Send a message to a proxy; its answer comes under `token`."""
        head, body = encode(message)
        try:
            self._registered[token] = self._messenger.send(
                self._peers[proxy], (head, body) if len(body) else head, partial(self._answered, token), retry=False
            )
        except TooLarge as error:  # The Messenger is at one of its limits; the next try may find room.
            _log.warning("client %s: %s", self._name, error)

    def send_unanswered(self, proxy: int, message: Message) -> None:
        """Send a message without a use for its answer. Any thread may call it, without the session's lock."""
        head, body = encode(message)
        try:
            self._messenger.send(self._peers[proxy], (head, body) if len(body) else head, retry=False)
        except TooLarge as error:
            _log.warning("client %s: %s", self._name, error)

    def forget(self, tokens: list[int]) -> None:
        """Stop expecting answers to these tokens; the list is emptied."""
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
