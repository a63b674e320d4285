"""Send requests to proxies without a client's state, for operators' commands, for reading a topic, and for Spark.

`ask` sends a request to one proxy and repeats it if no answer comes. After several failed tries it goes to the next
proxy, until the time-out. Each request is idempotent, by its position or by its own name. `ask_each` sends requests to
many proxies at once and returns the answer of each. Connections are made at their first use and not kept, since Spark's
workers are forked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self

import zmq

from pubsub.base.limits import PROXIES_MAX
from pubsub.base.reachability import rejection
from pubsub.client.core.retries import Retries
from pubsub.client.refusals import Asker, Request, word
from pubsub.config.settings import ClientSettings
from pubsub.errors import ConfigurationError, DecodeError, KeyRefused, NotAllowed, PubsubError, Refused, Unavailable
from pubsub.messenger import CurveClient, Messenger, Refusal
from pubsub.protocol import RETRY, Message, Outcome, Read, Report, Settings, Status, decode, encode
from pubsub.protocol.denials import denial
from pubsub.protocol.groups import Describe, Group
from pubsub.protocol.topic_objects import Purge
from pubsub.security.process_keys import ClientKeys, find_client_keys

TRY_SECONDS: Final = 0.5
"""Time for the first try, longer than that of a message, because a range of records is larger."""

TRIES: Final = 3
RETRY_SECONDS: Final = 0.05
RETRY_SECONDS_MAX: Final = 1.0
"""Limits of the pause before a request that was answered `retry` is sent again; it doubles."""

TIMEOUT_SECONDS: Final = 30.0

NOBODY: Final = Asker()

NO_TOPIC: Final = "no_server_holds_this_topic"
"""A proxy's reason for not passing a read on."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The reason why a proxy, or a server through it, gave no answer.

    Attributes:
        reason: text for a person.
        error: the error to raise if no other proxy answers either: KeyRefused if the proxy refuses our key or has an
            unexpected one, NotAllowed if we lack the right, otherwise Unavailable.
    """

    reason: str
    error: type[PubsubError] = Unavailable

    def __str__(self) -> str:
        return self.reason


def reason_of(answer: Status | NoAnswer) -> str:
    """Return the reason of an answer without success, or of a missing answer, for a person."""
    return answer.reason if isinstance(answer, NoAnswer) else answer.reason.replace("_", " ") or str(answer.outcome)


Answer = dict[str, Any] | NoAnswer
"""A report, or the reason why there is none."""


@dataclass(slots=True)
class Asked:
    """A request with its tries.

    Attributes:
        answer: the answer once it is here.
    """

    request: Request
    head: bytes
    body: Any
    retries: Retries
    tokens: list[int] = field(default_factory=list)
    answer: Status | None = None
    reason: str = "no proxy answers"

    def avoid(self, status: Status) -> None:
        """Ask another holder of the topic next time, if this one does not know the start of a read."""
        request = self.request
        if (
            isinstance(request, Read)
            and isinstance(request.start, tuple)
            and status.outcome is Outcome.UNKNOWN
            and status.log
        ):
            request.avoid = status.log
            self.head, self.body = encode(request)


class Proxies:
    """Connections to all proxies; a context manager.

    Args:
        addresses: of their clients' side; `ask` tries them in this order.
        timeout_seconds: time after which an unsettled request of `ask` raises.
        context: ZeroMQ context to share, which `inproc://` needs; None: one of its own.
        keys: ours and theirs; None: no keys.
        asker: the sender of the requests.

    Attributes:
        tells_absent: the answer that no server holds a topic is returned. Otherwise the request is repeated.

    Raises:
        ConfigurationError: an address is not valid, or there are too many.
    """

    tells_absent = False

    def __init__(
        self,
        addresses: Sequence[str],
        timeout_seconds: float = TIMEOUT_SECONDS,
        context: zmq.Context[Any] | None = None,
        *,
        keys: ClientKeys | None = None,
        asker: Asker = NOBODY,
    ) -> None:
        if not 0 < len(addresses) <= PROXIES_MAX:
            raise ConfigurationError(f"1 to {PROXIES_MAX} proxies are needed; {len(addresses)} are named")
        self.addresses, self.timeout_seconds, self.asker = tuple(addresses), timeout_seconds, asker
        self._refused: dict[str, str] = {}
        self._proxy = 0
        self._logs: dict[str, str] = {}
        self._messenger = Messenger(context)
        try:
            expected = [()] * len(addresses) if keys is None else keys.expected
            self._peers = {
                proxy: self._messenger.connect(
                    proxy,
                    curve=None if keys is None else CurveClient(keys.pair, may),
                    told=partial(self._told, proxy, may),
                )
                for proxy, may in zip(addresses, expected, strict=True)
            }
        except BaseException:
            self._messenger.close()
            raise

    @classmethod
    def of(cls, settings: ClientSettings) -> Self:
        """Connect to the proxies in the settings, for an operator's command.

        Raises:
            ConfigurationError: only one of proxies and command has keys, or our key cannot be read.
        """
        path, keys = settings.key_file, None
        if path is not None:
            keys = find_client_keys("client", "of this command", path, path, settings.proxies, settings.proxy_keys)
        elif settings.proxy_keys:
            raise ConfigurationError(
                f"{settings.proxies[0]} has a key, and this command has none: name a key file by --key FILE or"
                " PUBSUB_CLIENT_KEY_FILE"
            )
        asker = Asker(
            pair=keys.pair if keys else None,
            makes_key="name a key file by --key FILE or PUBSUB_CLIENT_KEY_FILE, and the proxy's key too",
            names_key="in the proxies file or --proxy-key",
            rights=" --status --operate",
        )
        return cls(settings.proxies, keys=keys, asker=asker)

    def _told(self, proxy: str, expected: Sequence[bytes], refusal: Refusal | None) -> None:
        """Record the refusal by a proxy; None: it no longer refuses."""
        if refusal is None:
            self._refused.pop(proxy, None)
        else:
            self._refused[proxy] = self.asker.sentence(refusal, proxy, expected)

    def ask_each(self, messages: Iterable[tuple[str, Message]], seconds: float) -> list[Status | NoAnswer]:
        """Send messages at once, each to a proxy, and return for each the answer or the reason for its absence.

        The Messenger handles repeats and lost messages.
        """
        answers: dict[int, Status | NoAnswer] = {}

        def take(index: int, _: object, contents: Any, parts: Sequence[Any]) -> None:
            answers[index] = _answer(contents, parts)

        tokens, addresses = [], []
        for index, (address, message) in enumerate(messages):
            header, _ = encode(message)
            tokens.append(self._messenger.send(self._peers[address], header, partial(take, index)))
            addresses.append(address)

        def done() -> bool:
            """Return True if each proxy has answered or refuses us."""
            return all(index in answers or address in self._refused for index, address in enumerate(addresses))

        self._messenger.wait(done, time.monotonic() + seconds)
        for token in tokens:
            self._messenger.forget(token)
        return [
            answers[index] if index in answers else self._silence(address, seconds)
            for index, address in enumerate(addresses)
        ]

    def read_each(self, questions: Iterable[tuple[str, Report]], seconds: float) -> list[Answer]:
        """Send report requests at once, each to a proxy, and return the reports."""
        return [_read(answer) for answer in self.ask_each(questions, seconds)]

    def reports(self, what: str, sender: str, seconds: float, topic: str = "") -> dict[str, Answer]:
        """Return each proxy's report about itself.

        Args:
            sender: name of the sender.
            seconds: longest wait.
            topic: the topic of the report; "": all.

        Raises:
            NotAllowed: no proxy answered, and one denied the request.
            KeyRefused: all proxies refused us.
            Unavailable: no proxy answered.
        """
        answers = self.read_each([(address, Report(sender, "-", topic)) for address in self.addresses], seconds)
        found = dict(zip(self.addresses, answers, strict=True))
        silent = [answer for answer in answers if isinstance(answer, NoAnswer)]
        if len(silent) == len(answers):
            denied = next((answer for answer in silent if answer.error is NotAllowed), None)
            if denied is not None:
                raise NotAllowed(what, topic, denied.reason)
            if all(answer.error is KeyRefused for answer in silent):
                raise self.asker.key_refused([answer.reason for answer in silent])
            reasons = "; ".join(f"{address}: {answer}" for address, answer in found.items())
            raise Unavailable(what, "any proxy", seconds, reasons)
        return found

    def _silence(self, address: str, seconds: float) -> NoAnswer:
        """Find the reason why a proxy has not answered."""
        if address in self._refused:
            return NoAnswer(self._refused[address], KeyRefused)
        return NoAnswer(rejection(address, min(1.0, seconds)) or f"no answer within {seconds:g} s")

    def ask(self, request: Request) -> Status:
        """Send a request and wait until it is settled.

        Returns:
            An answer other than `retry`.

        Raises:
            Unavailable: no such answer within the time-out; the text has the last answer.
            Refused: the service rejected its content.
            NotAllowed: the key lacks the right, or has lost it.
            KeyRefused: no proxy accepts this key, or none has the expected key.
        """
        return self.finish(self.start(request))

    def start(self, request: Request) -> Asked:
        """Send a request; `finish` waits for its answer."""
        if not isinstance(request, Report):
            request.log = self._logs.get(request.topic, "")
        head, body = encode(request)
        if self._all_refuse:  # The key may be authorized by now.
            self._refused.clear()
            for peer in self._peers.values():
                self._messenger.hurry(peer)
        pending = Asked(request, head, body, Retries(len(self.addresses), TRIES, TRY_SECONDS, self._proxy))
        self._send(pending)
        return pending

    def finish(self, pending: Asked) -> Status:
        """Wait until a sent request is settled; see `ask`."""
        until = time.monotonic() + self.timeout_seconds
        pause = RETRY_SECONDS
        while True:
            patience = min(until, time.monotonic() + pending.retries.patience)
            self._messenger.wait(lambda: pending.answer is not None or self._is_refused(pending), patience)
            status = pending.answer
            if status is None and self._all_refuse:
                self._forget(pending)
                raise self.asker.key_refused(self._sentences())
            if status is not None and (status.outcome not in RETRY or self._is_absent(pending.request, status)):
                return self._settled(pending, status)
            if status is not None:
                pending.reason = (status.reason or str(status.outcome)).replace("_", " ")
                if status.outcome is Outcome.GAP:
                    return status
                pending.avoid(status)
                self._messenger.wait(lambda: False, min(until, time.monotonic() + pause))
                pause = min(pause * 2, RETRY_SECONDS_MAX)
            if time.monotonic() >= until:
                self._forget(pending)
                topic = getattr(pending.request, "topic", "") or "the cluster"
                self._logs.pop(topic, None)  # The topic may be gone, and a proxy says so only if no log is named.
                reason = "; ".join([pending.reason, *self._sentences()])
                raise Unavailable(word(pending.request), topic, self.timeout_seconds, reason)
            if status is None and self._is_refused(pending):
                pending.retries.restart((pending.retries.proxy + 1) % len(self.addresses))
            else:
                pending.retries.fail()
            self._send(pending)

    @property
    def _all_refuse(self) -> bool:
        return len(self._refused) == len(self._peers)

    def _sentences(self) -> list[str]:
        """Return the refusals of proxies, in their order."""
        return [self._refused[proxy] for proxy in self.addresses if proxy in self._refused]

    def _is_refused(self, pending: Asked) -> bool:
        """Return True if the present proxy of the request refuses us."""
        return self.addresses[pending.retries.proxy] in self._refused

    def _send(self, pending: Asked) -> None:
        pending.answer = None
        contents = (pending.head, pending.body) if len(pending.body) else pending.head
        peer = self._peers[self.addresses[pending.retries.proxy]]
        pending.tokens.append(self._messenger.send(peer, contents, partial(_answered, pending), retry=False))

    def _settled(self, pending: Asked, status: Status) -> Status:
        self._forget(pending)
        self._proxy = pending.retries.proxy
        request = pending.request
        if status.outcome is Outcome.REFUSED:
            topic = getattr(request, "topic", "the cluster")
            raise Refused(word(request), topic, status.reason.replace("_", " "))
        if status.outcome is Outcome.DENIED:
            raise self.asker.denied(request, status)
        if status.log and not isinstance(request, Report):
            self._logs[request.topic] = status.log
        return status

    def _forget(self, pending: Asked) -> None:
        for token in pending.tokens:
            self._messenger.forget(token)
        pending.tokens.clear()

    def _is_absent(self, request: Request, status: Status) -> bool:
        """Return True if the request does not create its topic, and the topic does not exist."""
        if status.outcome is not Outcome.UNKNOWN:
            return False
        return isinstance(request, Settings | Purge | Describe | Group) or (
            self.tells_absent and status.reason == NO_TOPIC
        )

    def close(self) -> None:
        self._messenger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _answered(pending: Asked, _peer: object, contents: Any, frames: Sequence[Any]) -> None:
    try:
        status = decode(contents, frames[0] if frames else None)
    except DecodeError as error:
        pending.reason = str(error)
        return
    if isinstance(status, Status) and (pending.answer is None or pending.answer.outcome in RETRY):
        pending.answer = status


def _answer(contents: Any, parts: Sequence[Any]) -> Status | NoAnswer:
    try:
        answer = decode(contents, parts[0] if parts else None)
    except DecodeError as error:
        return NoAnswer(f"an answer that cannot be read ({error})")
    if not isinstance(answer, Status):
        return NoAnswer("an answer of another kind than a status")
    if answer.outcome is Outcome.DENIED:
        return NoAnswer(denial(answer) or answer.reason.replace("_", " "), NotAllowed)
    return answer


def _read(status: Status | NoAnswer) -> Answer:
    if isinstance(status, NoAnswer):
        return status
    if status.outcome is not Outcome.SUCCESS:
        return NoAnswer(reason_of(status))
    try:
        report = json.loads(bytes(status.body))
    except (ValueError, RecursionError) as error:
        return NoAnswer(f"an answer that cannot be read ({error})")
    return report if isinstance(report, dict) else NoAnswer("an answer that is not a report")
