"""How an operator's command reaches the proxies, with a key where they ask for one, and what their answers are."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from pubsub.base.reachability import obstacle
from pubsub.config.settings import ClientSettings
from pubsub.errors import ConfigurationError, DecodeError, NotAllowed, NotLetIn, Unavailable
from pubsub.messenger import CurveClient, Messenger, Refusal
from pubsub.protocol.codec import decode, encode
from pubsub.protocol.messages import Message, Outcome, Report, Status, denial
from pubsub.security.keys import format_public

Answer = dict[str, Any] | str
"""A report, or why there is none."""


class Refused(str):
    """Why there is no answer: the proxy does not let us in, or is not the one that it should be."""


class Denied(str):
    """Why there is no answer: we have no right to what was asked."""


class Proxies:
    """The proxies, with a connection to each; a context manager.

    Args:
        settings: where they are, their keys, and the file of ours.

    Attributes:
        addresses: of their clients' side.

    Raises:
        ConfigurationError: they have keys and we have none, or the other way round, or ours cannot be read.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.addresses = settings.proxies
        self._refused: dict[str, Refused] = {}
        curves = _curves(settings)
        self._messenger = Messenger()
        try:
            peers = [
                self._messenger.connect(proxy, curve=curve, told=partial(self._told, proxy, curve))
                for proxy, curve in zip(self.addresses, curves, strict=True)
            ]
        except BaseException:
            self._messenger.close()
            raise
        self._peers = dict(zip(self.addresses, peers, strict=True))

    def __enter__(self) -> Proxies:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._messenger.close()

    def send(self, messages: Iterable[tuple[str, Message]], seconds: float) -> list[Status | str]:
        """The answers to messages that are sent at once, each to a proxy; why there is none, where none came.

        Repeats and lost messages are the Messenger's business.
        """
        answers: dict[int, Status | str] = {}

        def taker(index: int) -> Any:
            def take(_: object, contents: Any, parts: Sequence[Any]) -> None:
                answers[index] = _answer(contents, parts)

            return take

        tokens, addresses = [], []
        for index, (address, message) in enumerate(messages):
            header, _ = encode(message)
            tokens.append(self._messenger.send(self._peers[address], header, taker(index)))
            addresses.append(address)

        def done() -> bool:
            """Whoever refuses us is not waited for."""
            return all(index in answers or address in self._refused for index, address in enumerate(addresses))

        self._messenger.wait(done, time.monotonic() + seconds)
        for token in tokens:
            self._messenger.forget(token)
        return [
            answers[index] if index in answers else self._silence(address, seconds)
            for index, address in enumerate(addresses)
        ]

    def ask(self, questions: Iterable[tuple[str, Report]], seconds: float) -> list[Answer]:
        """The reports that answer these questions, asked at once, each at a proxy."""
        return [_read(answer) for answer in self.send(questions, seconds)]

    def reports(self, what: str, sender: str, seconds: float, topic: str = "") -> dict[str, Answer]:
        """What each proxy says of itself.

        Args:
            what: is asked for, for the error.
            sender: who asks.
            seconds: patience.
            topic: the one that is asked about; "": all.

        Raises:
            NotAllowed: none of them answered, and one denied it.
            NotLetIn: all of them refused us.
            Unavailable: none of them answered.
        """
        heard = self.ask([(address, Report(sender, "-", topic)) for address in self.addresses], seconds)
        found = dict(zip(self.addresses, heard, strict=True))
        if not any(isinstance(answer, dict) for answer in heard):
            reasons = "; ".join(f"{address}: {answer}" for address, answer in found.items())
            denied = next((answer for answer in heard if isinstance(answer, Denied)), None)
            if denied is not None:
                raise NotAllowed(what, topic, str(denied))
            if all(isinstance(answer, Refused) for answer in heard):
                raise NotLetIn("; ".join(map(str, heard)))
            raise Unavailable(what, "any proxy", seconds, reasons)
        return found

    def _silence(self, address: str, seconds: float) -> str:
        """Why a proxy has not answered."""
        refused = self._refused.get(address)
        if refused is not None:
            return refused
        return obstacle(address, min(1.0, seconds)) or f"no answer within {seconds:g} s"

    def _told(self, address: str, curve: CurveClient | None, refusal: Refusal | None) -> None:
        """A proxy does not let us in; None: nothing stands against it any more."""
        if refusal is None:
            self._refused.pop(address, None)
        else:
            self._refused[address] = Refused(_sentence(address, curve, refusal))


def _curves(settings: ClientSettings) -> list[CurveClient | None]:
    """For each proxy by which keys we know each other; None: by none."""
    if settings.key_file is None:
        if settings.proxy_keys:
            raise ConfigurationError(
                f"{settings.proxies[0]} has a key, and this command has none: name a key file by --key FILE or"
                " PUBSUB_CLIENT_KEY_FILE"
            )
        return [None for _ in settings.proxies]
    from pubsub.security.opening import find_client_keys

    proxies, path = settings.proxies, settings.key_file
    keys = find_client_keys("client", "of this command", path, path, proxies, settings.proxy_keys)
    if keys is None:
        return [None for _ in proxies]
    return [CurveClient(keys.pair, expected) for expected in keys.expected]


def _sentence(address: str, curve: CurveClient | None, refusal: Refusal) -> str:
    """Why a proxy does not let us in, and what to do about it."""
    if curve is None:
        return f"{address} wants a key: name a key file by --key FILE or PUBSUB_CLIENT_KEY_FILE, and its own key too"
    own, its = format_public(curve.pair.public), " or ".join(map(format_public, curve.expected))
    if refusal is Refusal.KEY_UNKNOWN:
        return f"proxy {address} does not know the key {own}: pubsub keys authorize client ID {own} --status --operate"
    if refusal is Refusal.KEY_MISSING:
        return f"{address} has no key, and is named with {its}: it is not spoken to"
    return f"{address} closed the handshake: its key is not {its}, with which it is named"


def _answer(contents: Any, parts: Sequence[Any]) -> Status | str:
    try:
        answer = decode(contents, parts[0] if parts else None)
    except DecodeError as error:
        return f"an answer that cannot be read ({error})"
    if not isinstance(answer, Status):
        return "an answer that is none"
    if answer.outcome is Outcome.DENIED:
        return Denied(denial(answer) or answer.reason.replace("_", " "))
    return answer


def _read(status: Status | str) -> Answer:
    if isinstance(status, str):
        return status
    if status.outcome is not Outcome.SUCCESS:
        return status.reason.replace("_", " ") or str(status.outcome)
    try:
        report = json.loads(bytes(status.body))
    except (ValueError, RecursionError) as error:
        return f"an answer that cannot be read ({error})"
    return report if isinstance(report, dict) else "an answer that is no report"
