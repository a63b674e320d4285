"""A session's connections to its proxies: messages out, by the token of their answer, and answers in."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from pubsub.errors import DecodeError, TooLarge
from pubsub.messenger import Messenger
from pubsub.protocol import Message, Status, decode, encode

_log: Final = logging.getLogger("pubsub.client")


class Wire:
    """Connections to all proxies.

    Args:
        name: the client ID, for the log.
        messenger: connects.
        proxies: their addresses.
        counters: where what cannot be decoded is counted.

    Attributes:
        inbox: answers that came, with the tokens of what they answer.

    Raises:
        ConfigurationError: that is not an address.
    """

    def __init__(self, name: str, messenger: Messenger, proxies: Sequence[str], counters: dict[str, int]) -> None:
        self._name, self._messenger, self._counters = name, messenger, counters
        self.inbox: deque[tuple[int, Status]] = deque()
        self._registered: dict[int, int] = {}
        self._peers = [messenger.connect(proxy) for proxy in proxies]

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

    def _answered(self, token: int, peer: object, contents: Any, frames: Sequence[Any]) -> None:
        self._registered.pop(token, None)
        try:
            status = decode(contents, frames[0] if frames else None)
        except DecodeError as error:
            self._counters["undecodable"] += 1
            _log.warning("client %s: an answer is dropped: %s", self._name, error)
            return
        if isinstance(status, Status):
            self.inbox.append((token, status))
