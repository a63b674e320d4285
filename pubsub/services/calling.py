"""A call of a service: a thread waits for its future in `ServiceClient`, a task in `AsyncServiceClient`.

A thread of `Calling` drives the sockets. An interrupt of the caller (Ctrl-C, a cancelled task) therefore cannot hit a
socket operation: it withdraws the call, and a later reply is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from threading import Thread
from typing import Any, Final

import zmq

from pubsub.base.clock import Clock
from pubsub.base.handler_errors import located
from pubsub.base.limits import BODY_BYTES_MAX
from pubsub.errors import CallerError, ConfigurationError, InvalidName, KeyRefused, PubsubError, TooLarge
from pubsub.services.access import Locks
from pubsub.services.core.interface import (
    AccessRefused,
    Answered,
    Event,
    Frames,
    GivenUp,
    PartlyAnswered,
    Patience,
    Rejected,
)
from pubsub.services.engine import Engine, log_event
from pubsub.services.errors import CallRefused, CallTimeout, NoWorker
from pubsub.services.kinds import CALLERS, TELLING

CALLS_MAX: Final = 10_000
"""Calls of one client that may be under way."""

BODY_FRAMES_MAX: Final = 48
"""Frames of the body of a request or reply. The envelope takes the rest of FRAMES_MAX."""

REPLY_BYTES_MAX: Final = BODY_BYTES_MAX - 64 * 1024
"""Bytes of the body of a request or reply. The rest of BODY_BYTES_MAX is for the envelope."""

PARTS_MAX: Final = 10_000
"""Parts of one reply that are kept if the call has no `on_part`. One part more ends the call."""

ASK_SECONDS: Final = 1.0
"""Time limit for the broker's answer to the question whether a service has workers."""

SERVICE_LENGTH_MAX: Final = 255
"""Length limit of a service's name."""

Body = bytes | Sequence[bytes]

_BYTES: Final = (bytes, bytearray, memoryview)

_log: Final = logging.getLogger("pubsub.services")


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a call.

    Attributes:
        frames: the frames of the reply, or of its last part; nearly always one.
        parts: the earlier parts, if the service replies in parts and the call had no `on_part`.
    """

    frames: Frames
    parts: tuple[Frames, ...] = ()

    @property
    def body(self) -> bytes:
        """All frames of all parts, joined."""
        return b"".join([frame for part in self.parts for frame in part] + list(self.frames))

    def __bytes__(self) -> bytes:
        return self.body


@dataclass(slots=True)
class _Pending:
    service: str
    future: Future[Reply]
    on_part: Callable[[bytes], object] | None
    parts: list[Frames] = field(default_factory=list)
    timeout: CallTimeout | None = None
    """The error of the call, kept while the broker is asked whether its service has workers."""


def frames_of(body: object, what: str = "the body") -> Frames:
    """Return a body as frames.

    Raises:
        CallerError: the body is neither bytes nor a sequence of bytes.
        TooLarge: other peers would reject a body of this size.
    """
    if isinstance(body, _BYTES):
        frames: Frames = (bytes(body),)
    elif isinstance(body, (tuple, list)) and not [part for part in body if not isinstance(part, _BYTES)]:
        frames = tuple(map(bytes, body)) or (b"",)
    else:
        raise CallerError(f"{what} must be bytes or a sequence of bytes, not {type(body).__name__}")
    if len(frames) > BODY_FRAMES_MAX:
        raise TooLarge(f"the number of frames of {what}", len(frames), BODY_FRAMES_MAX, "BODY_FRAMES_MAX")
    size = sum(map(len, frames))
    if size > REPLY_BYTES_MAX:
        raise TooLarge(what, size, REPLY_BYTES_MAX, "REPLY_BYTES_MAX")
    return frames


def check_service(name: object) -> str:
    """Check the name of a service; "" is allowed, for protocols without names.

    Raises:
        InvalidName: the name is too long or not printable ASCII.
    """
    if not isinstance(name, str) or len(name) > SERVICE_LENGTH_MAX or not (name.isascii() and name.isprintable()):
        raise InvalidName("service", name, f"up to {SERVICE_LENGTH_MAX} printable ASCII characters")
    return name


def check_patience(seconds: object, tries: object) -> Patience:
    """Raise CallerError if the timeout or the number of tries is out of range."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 1e9:
        raise CallerError(f"the timeout must be a number of seconds above 0, not {seconds!r}")
    if isinstance(tries, bool) or not isinstance(tries, int) or not 1 <= tries <= 1_000_000:
        raise CallerError(f"the number of tries must be from 1 to 1,000,000, not {tries!r}")
    return Patience(float(seconds), tries)


def core_of(kind: str, kinds: dict[str, Any] | Any, what: str) -> Any:
    """Return the row of a table in `kinds`.

    Raises:
        CallerError: the table has no such kind.
    """
    if kind not in kinds:
        raise CallerError(f"there is no kind {kind!r} {what}; use one of: {', '.join(kinds)}")
    return kinds[kind]


class Calling:
    """Calls over one core; a thread of this object drives its sockets.

    Args:
        kind: a key of `kinds.CALLERS`.
        patience: for calls without a timeout and tries of their own.
        context: a ZeroMQ context to share.

    Raises:
        ConfigurationError: an address is invalid, or the keys cannot be used.
        CallerError: there is no such kind.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        kind: str,
        patience: Patience,
        locks: Locks | None = None,
        context: zmq.Context[Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not addresses:
            raise ConfigurationError("name at least one address to call")
        self.patience, self.addresses = patience, tuple(addresses)
        self._tells = kind in TELLING
        self._core = core_of(kind, CALLERS, "to call")(self.addresses)
        self._engine = Engine(self._core, locks=locks, context=context, clock=clock, told=self._told)
        self._tokens = count(1)
        self._calls: dict[int, _Pending] = {}
        self._closed = False
        self._broken: BaseException | None = None
        self._engine.open()
        self._thread = Thread(target=self._drive, name="services calls", daemon=True)
        self._thread.start()

    def submit(
        self, service: str, body: Body, patience: Patience | None, on_part: Callable[[bytes], object] | None = None
    ) -> Future[Reply]:
        """Call a service. Any thread may call this.

        Args:
            service: "" if the protocol names no service.
            patience: None: the patience of this object.
            on_part: receives each part of the reply, in the thread that drives the sockets.

        Returns:
            The future reply. It fails with a CallError or KeyRefused. To cancel the future withdraws the call.
        """
        service, frames = check_service(service), frames_of(body)
        if self._broken is not None:
            raise CallerError(f"this client has ended ({self._broken}); make a new one") from self._broken
        if self._closed:
            raise CallerError("this client is closed; make a new one")
        if len(self._calls) >= CALLS_MAX:
            raise TooLarge("the number of calls under way", len(self._calls) + 1, CALLS_MAX, "CALLS_MAX")
        future: Future[Reply] = Future()
        token = next(self._tokens)
        wait = patience or self.patience
        self._calls[token] = _Pending(service, future, on_part)
        try:
            self._engine.submit(lambda now: self._core.call(token, service, frames, wait, now))
        except CallerError:  # This process is a forked child.
            del self._calls[token]
            raise
        future.add_done_callback(partial(self._taken_back, token))
        if self._broken is not None or self._closed:  # The client ended meanwhile and may not have seen this call.
            self._fail_all(CallerError("this client was closed while a call was under way"))
        return future

    def _taken_back(self, token: int, future: Future[Reply]) -> None:
        if future.cancelled() and self._calls.pop(token, None) is not None and not self._engine.ended:
            self._engine.submit(lambda now: self._core.cancel(token, now))

    def _drive(self) -> None:
        try:
            self._engine.run()
            self._engine.leave()
        except BaseException as error:  # noqa: BLE001 - any error must reach the waiting calls.
            self._broken = error
            _log.error(
                "a client of services has ended, and its calls fail: %s",
                error,
                exc_info=not isinstance(error, PubsubError),
            )
        finally:
            self._engine.close()
            why = "was closed" if self._broken is None else f"has ended ({self._broken})"
            self._fail_all(CallerError(f"this client {why} while a call was under way"))

    def _fail_all(self, error: PubsubError) -> None:
        while self._calls:
            try:
                _, pending = self._calls.popitem()
            except KeyError:
                return
            _finish(pending.future, error)

    def _told(self, event: Event, now: float) -> None:
        token = getattr(event, "token", None)
        if token is None:
            log_event(event, now)
            return
        pending = self._calls.get(token)
        if pending is None:
            return
        if isinstance(event, PartlyAnswered):
            self._part(token, pending, event.body, now)
            return
        del self._calls[token]
        if pending.timeout is not None:
            _finish(pending.future, _no_worker(pending.service, event) or pending.timeout)
        elif isinstance(event, GivenUp) and self._tells and not pending.service.startswith("mmi."):
            self._ask_for_workers(pending, event, now)
        elif isinstance(event, Answered):
            _finish(pending.future, Reply(event.body, tuple(pending.parts)))
        else:
            _finish(pending.future, _error(pending.service, event))

    def _ask_for_workers(self, pending: _Pending, event: GivenUp, now: float) -> None:
        """Ask the broker for the service's workers, to tell a wrong name from a slow worker (RFC 8, `mmi.service`)."""
        pending.timeout = CallTimeout(pending.service, event.tries, event.seconds, event.addresses)
        token = next(self._tokens)
        self._calls[token] = pending
        self._core.call(token, "mmi.service", (pending.service.encode(),), Patience(ASK_SECONDS, 1), now)

    def _part(self, token: int, pending: _Pending, body: Frames, now: float) -> None:
        if pending.on_part is not None:
            try:
                pending.on_part(b"".join(body))
            except Exception as error:  # noqa: BLE001 - an error of the application; the call continues.
                name = pending.service or "a service"
                _log.error("on_part failed for a part of a reply of %s; the call continues: %s", name, located(error))
                _log.debug("on_part failed for a part of a reply of %s", name, exc_info=error)
        elif len(pending.parts) < PARTS_MAX:
            pending.parts.append(body)
        else:
            del self._calls[token]
            self._core.cancel(token, now)
            _finish(pending.future, TooLarge("the number of parts of a reply", PARTS_MAX + 1, PARTS_MAX, "PARTS_MAX"))

    def close(self) -> None:
        """Withdraw the calls under way and close the sockets. Any thread may call this, also twice."""
        if self._closed or self._engine.inherited:
            return
        self._closed = True
        self._engine.stop()
        self._thread.join()


def _finish(future: Future[Reply], result: Reply | PubsubError) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(result, Reply):
        future.set_result(result)
    else:
        future.set_exception(result)


def _no_worker(service: str, event: Event) -> NoWorker | None:
    """Return NoWorker if the broker's answer is that the service has no workers; None if not, or without an answer."""
    if not isinstance(event, Answered) or event.body[:1] != (b"404",):
        return None
    return NoWorker(service, f"it has no worker; start one: pubsub service work {service or 'NAME'}")


def _error(service: str, event: Event) -> PubsubError:
    if isinstance(event, GivenUp):
        return CallTimeout(service, event.tries, event.seconds, event.addresses)
    if isinstance(event, Rejected):
        return CallRefused(service, event.code, event.reason)
    assert isinstance(event, AccessRefused)
    return KeyRefused(event.reason)
