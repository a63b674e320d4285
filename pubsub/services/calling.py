"""A call of a service, written once: a thread waits for its future in `ServiceClient`, a task in `AsyncServiceClient`.

The sockets are driven by a thread of this object's own, which an interrupt of the caller (Ctrl-C, a cancelled task)
never strikes: the call is taken back, and whatever comes for it is dropped.
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
from pubsub.base.limits import BODY_BYTES_MAX
from pubsub.errors import CallerError, ConfigurationError, InvalidName, NotLetIn, PubsubError, TooLarge
from pubsub.services.core.interface import (
    Answered,
    Event,
    Frames,
    GivenUp,
    PartlyAnswered,
    Patience,
    Rejected,
    ShutOut,
)
from pubsub.services.engine import Engine, log_event
from pubsub.services.entrance import Locks
from pubsub.services.errors import CallRefused, CallTimeout, NoWorker
from pubsub.services.kinds import CALLERS, TELLING

CALLS_MAX: Final = 10_000
"""Calls of one client that may be under way."""

BODY_FRAMES_MAX: Final = 48
"""Frames of the body of a request or reply; the envelope takes the rest of FRAMES_MAX."""

REPLY_BYTES_MAX: Final = BODY_BYTES_MAX - 64 * 1024
"""Bytes of the body of a request or reply; what is left of BODY_BYTES_MAX is the envelope's."""

PARTS_MAX: Final = 10_000
"""Parts of one reply that are kept where nobody takes them one by one; more end the call."""

ASK_SECONDS: Final = 1.0
"""How long a broker may take to say whether a service has workers."""

SERVICE_LENGTH_MAX: Final = 255
"""Bytes of the name of a service."""

Body = bytes | Sequence[bytes]

_BYTES: Final = (bytes, bytearray, memoryview)

_log: Final = logging.getLogger("pubsub.services")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a service answered.

    Attributes:
        frames: as they came; nearly always one.
        parts: what came before it, where the service answers in parts and the call did not take them one by one.
    """

    frames: Frames
    parts: tuple[Frames, ...] = ()

    @property
    def body(self) -> bytes:
        """All frames of all parts as one."""
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
    """How the call ended, while it is asked whether anybody serves its service."""


def frames_of(body: object, what: str = "the body") -> Frames:
    """A body as frames.

    Raises:
        CallerError: it is neither bytes nor a sequence of bytes.
        TooLarge: it is larger than the sockets of others take.
    """
    if isinstance(body, _BYTES):
        frames: Frames = (bytes(body),)
    elif isinstance(body, (tuple, list)) and not [part for part in body if not isinstance(part, _BYTES)]:
        frames = tuple(map(bytes, body)) or (b"",)
    else:
        raise CallerError(f"{what} is bytes or a sequence of bytes, not {type(body).__name__}")
    if len(frames) > BODY_FRAMES_MAX:
        raise TooLarge(f"the number of frames of {what}", len(frames), BODY_FRAMES_MAX, "BODY_FRAMES_MAX")
    size = sum(map(len, frames))
    if size > REPLY_BYTES_MAX:
        raise TooLarge(what, size, REPLY_BYTES_MAX, "REPLY_BYTES_MAX")
    return frames


def check_service(name: object) -> str:
    """The name of a service; "" where the protocol names none.

    Raises:
        InvalidName: it cannot be one.
    """
    if not isinstance(name, str) or len(name) > SERVICE_LENGTH_MAX or not (name.isascii() and name.isprintable()):
        raise InvalidName("service", name, f"up to {SERVICE_LENGTH_MAX} printable ASCII characters")
    return name


def check_patience(seconds: object, tries: object) -> Patience:
    """How long a caller waits.

    Raises:
        CallerError: that cannot be.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 1e9:
        raise CallerError(f"the timeout is a number of seconds above 0, not {seconds!r}")
    if isinstance(tries, bool) or not isinstance(tries, int) or not 1 <= tries <= 1_000_000:
        raise CallerError(f"the tries are a number from 1 to 1,000,000, not {tries!r}")
    return Patience(float(seconds), tries)


def core_of(kind: str, kinds: dict[str, Any] | Any, what: str) -> Any:
    """The row of a table of kinds.

    Raises:
        CallerError: there is no such kind.
    """
    if kind not in kinds:
        raise CallerError(f"there is no kind {kind!r} {what}; kinds: {', '.join(kinds)}")
    return kinds[kind]


class Calling:
    """Calls over one core, whose sockets a thread drives.

    Args:
        addresses: where to call.
        kind: how: a key of `kinds.CALLERS`.
        patience: of calls that say nothing else.
        locks: the keys.
        context: a ZeroMQ context to share.
        clock: where the time comes from.

    Raises:
        ConfigurationError: an address is none, or the keys cannot be used.
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
            raise ConfigurationError("no address to call is named")
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
        """Call a service; any thread may.

        Args:
            service: its name, "" where the protocol names none.
            body: of the request.
            patience: how long to wait; None: as this object's.
            on_part: is given each part of a reply that comes in parts, by the thread that drives the sockets.

        Returns:
            The reply to come, or why there is none: a CallError, or NotLetIn. Where it is cancelled the call is taken
            back.
        """
        service, frames = check_service(service), frames_of(body)
        if self._broken is not None:
            raise CallerError(f"this client has ended: {self._broken}") from self._broken
        if self._closed:
            raise CallerError("this client is closed")
        if len(self._calls) >= CALLS_MAX:
            raise TooLarge("the number of calls under way", len(self._calls) + 1, CALLS_MAX, "CALLS_MAX")
        future: Future[Reply] = Future()
        token = next(self._tokens)
        wait = patience or self.patience
        self._calls[token] = _Pending(service, future, on_part)
        try:
            self._engine.submit(lambda now: self._core.call(token, service, frames, wait, now))
        except CallerError:  # We are a forked child.
            del self._calls[token]
            raise
        future.add_done_callback(partial(self._taken_back, token))
        if self._broken is not None or self._closed:  # It ended meanwhile, and may not have seen this call.
            self._fail_all(CallerError("this client was closed while a call waited"))
        return future

    def _taken_back(self, token: int, future: Future[Reply]) -> None:
        if future.cancelled() and self._calls.pop(token, None) is not None and not self._engine.ended:
            self._engine.submit(lambda now: self._core.cancel(token, now))

    def _drive(self) -> None:
        try:
            self._engine.run()
            self._engine.leave()
        except BaseException as error:  # noqa: BLE001 - whatever it is, those who wait are told.
            self._broken = error
            _log.error("a client of services has ended: %s", error, exc_info=not isinstance(error, PubsubError))
        finally:
            self._engine.close()
            why = "was closed" if self._broken is None else f"has ended ({self._broken})"
            self._fail_all(CallerError(f"this client {why} while a call waited"))

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
        """A call got no reply: a mistyped name is told from a worker that hangs (RFC 8, `mmi.service`)."""
        pending.timeout = CallTimeout(pending.service, event.tries, event.seconds, event.addresses)
        token = next(self._tokens)
        self._calls[token] = pending
        self._core.call(token, "mmi.service", (pending.service.encode(),), Patience(ASK_SECONDS, 1), now)

    def _part(self, token: int, pending: _Pending, body: Frames, now: float) -> None:
        if pending.on_part is not None:
            try:
                pending.on_part(b"".join(body))
            except Exception:  # noqa: BLE001 - the application's; it is logged, and the call goes on.
                _log.exception("the callback for parts of a reply of %s raised", pending.service or "a service")
        elif len(pending.parts) < PARTS_MAX:
            pending.parts.append(body)
        else:
            del self._calls[token]
            self._core.cancel(token, now)
            _finish(pending.future, TooLarge("the number of parts of a reply", PARTS_MAX + 1, PARTS_MAX, "PARTS_MAX"))

    def close(self) -> None:
        """Give up what is under way, and release the sockets; any thread may, also twice."""
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
    """What a broker answered when it was asked for workers of a service; None: it has some, or did not answer."""
    if not isinstance(event, Answered) or event.body[:1] != (b"404",):
        return None
    return NoWorker(service, f"nobody serves it; start a worker: pubsub service work {service or 'NAME'}")


def _error(service: str, event: Event) -> PubsubError:
    """What a caller is told of a call that came to no reply."""
    if isinstance(event, GivenUp):
        return CallTimeout(service, event.tries, event.seconds, event.addresses)
    if isinstance(event, Rejected):
        return CallRefused(service, event.code, event.reason)
    assert isinstance(event, ShutOut)
    return NotLetIn(event.reason)
