"""`Worker`: runs a handler for the requests of a service, behind a queue or broker, or as a server of its own.

The handler runs in the thread, or on the event loop, that runs the worker, one request at a time. During a long handler
another thread sends the heartbeats (`background_driver`). So a handler may take any time, and may use objects that
belong to its thread.

The rule is docs/explanation/services-engine.md, E7.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Event as ThreadEvent
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from pubsub.base.forks import no_pickling
from pubsub.base.handler_errors import located
from pubsub.errors import CallerError, ConfigurationError, PubsubError
from pubsub.services.background_driver import LOOK_SECONDS, BackgroundDriver
from pubsub.services.calling import check_service, core_of, frames_of
from pubsub.services.core.binary_star.paired import PairedServer
from pubsub.services.core.interface import Event, Frames, Port, Requested, WorkerCore
from pubsub.services.engine import Engine, log_event
from pubsub.services.errors import HandlerOverran
from pubsub.services.handlers import AsyncHandler, Handler, Request, awaited, check_handler, echo
from pubsub.services.keys import find_locks
from pubsub.services.kinds import SERVERS, USUAL_BEATS, WORKERS, Beats
from pubsub.services.options import HEARTBEAT_SECONDS_MAX, HEARTBEAT_SECONDS_MIN, checked
from pubsub.services.overrun import CANCEL_SECONDS, Overrun

if TYPE_CHECKING:
    import zmq

    from pubsub.services.access import Locks
    from pubsub.services.pairing import Pairing

_log: Final = logging.getLogger("pubsub.services")

REASON_LENGTH_MAX: Final = 500
"""Characters of the reason that a caller receives if a handler fails."""


class Worker:
    """Does the work of one service.

        worker = Worker("shout", broker="tcp://127.0.0.1:5556", kind="paranoid", handler=lambda r: r.body.upper())
        worker.run()

    Use it also as a decorator, `@Worker.of("shout", broker=…)` above a function, or derive a class with its own
    `handle`. An exception of the handler is logged. The caller then gets an error, or no reply if the pattern has no
    error replies.

    Args:
        name: name of the service.
        broker: address of the broker, or of the queue's backend.
        bind: address to serve on, without a queue; either this or `broker`.
        kind: the pattern: a key of `kinds.WORKERS`, or with `bind` of `kinds.SERVERS`; None: "mdp", or "lazy".
        handler: receives a `Request` and returns the reply's body, bytes or a sequence of them; None: `handle`.
        key_file: file with the secret key of this worker, if there are keys.
        broker_key: public key of the broker.
        authorized: with `bind`, the access list.
        insecure: with `bind`, allow other hosts to connect without keys.
        advertise: with `bind`, the address that callers use, which is the name of a freelance3 server; None: `bind`.
        heartbeat: with `broker`, seconds between heartbeats; None: 2.5, or 1 of kind paranoid.
        liveness: with `broker`, silent heartbeat intervals after which the broker counts as dead; None: 3.
        handler_timeout: seconds that the handler may take for a request; None: any time. At the limit a coroutine is
            cancelled, and its caller is answered as after an exception. A function cannot be stopped: the process ends
            with exit code 35.
        pair: with `bind`, makes this one of two servers, which takes requests while it is active; None: no pair.
        locks: the keys, for a program that has them in memory.
        context: a ZeroMQ context to share, which `inproc://` addresses need.

    Attributes:
        address: with `bind`, the bound address. `run` and `serve` call their `ready` once it can be read.

    Raises:
        ConfigurationError: an address is invalid, or a key cannot be used.
        CallerError: there is no such kind, both or neither of `broker` and `bind` are given, or this kind has no
            heartbeats.
    """

    def __init__(
        self,
        name: str = "",
        *,
        broker: str | None = None,
        bind: str | None = None,
        kind: str | None = None,
        handler: Handler | AsyncHandler | None = None,
        key_file: str | None = None,
        broker_key: str = "",
        authorized: str | None = None,
        insecure: bool = False,
        advertise: str | None = None,
        heartbeat: float | None = None,
        liveness: int | None = None,
        handler_timeout: float | None = None,
        pair: Pairing | None = None,
        locks: Locks | None = None,
        context: zmq.Context[Any] | None = None,
    ) -> None:
        self.name = check_service(name)
        _check_places(broker, bind, pair)
        if handler is not None and not callable(handler):
            raise CallerError(f"the handler must be a function, not {type(handler).__name__}")
        self._handler: Callable[[Request], Any] = handler or self.handle
        address = checked([broker or bind or ""], "the address", bind=broker is None)
        binds, dials = ([], address) if broker is not None else (address, [])
        if pair is not None:
            binds, dials = [*binds, pair.state], [pair.peer]
        keys: dict[str, Any] = {"key_file": key_file, "authorized": authorized, "insecure": insecure}
        if locks is None:
            expected = [broker_key] if broker_key else []
            locks = find_locks(name or "this worker", binds=binds, dials=dials, expected=expected, **keys)
        self._locked = locks.listening is not None
        beats = _checked_beats(heartbeat, liveness, broker)
        make, ports = _core(name, kind, broker and address[0], bind and address[0], advertise, beats)
        if pair is None:
            self._core = make()
            self._engine = Engine(self._core, ports, locks=locks, context=context, told=self._told)
        else:
            self._core = paired = PairedServer(pair.role, make, pair.heartbeat)
            self._engine = pair.engine(paired, ports, locks=locks, context=context, told=self._told)
        self._put: Callable[[Requested | None], object] | None = None
        self._look_seconds = min(LOOK_SECONDS, heartbeat / 4 if heartbeat else LOOK_SECONDS)
        self._handler_timeout = _checked_timeout(handler_timeout)
        self._overrun = Overrun(self.name, handler_timeout, self._say_good_bye)
        self._stopping = False
        self._address: str | None = None if broker is None else ""
        self._broken: BaseException | None = None
        self._thread: Thread | None = None

    @classmethod
    def of(cls, name: str = "", **arguments: Any) -> Callable[[Handler | AsyncHandler], Worker]:
        """Decorator that turns a handler into a worker; arguments as in the class."""
        return lambda handler: cls(name, handler=handler, **arguments)

    @property
    def address(self) -> str:
        """With `bind`, the bound address; "" with `broker`.

        Raises:
            CallerError: the worker has not bound it yet. `run` and `serve` call their `ready` once it is bound.
        """
        if self._address is None:
            where = self.name or "this worker"
            raise CallerError(f"{where} has no address yet: read it in ready, or after run or serve has called ready")
        return self._address

    def handle(self, request: Request) -> Any:
        """Answer a request if no handler is given. This one returns the request."""
        return echo(request)

    def run(self, ready: Callable[[], object] | None = None) -> None:
        """Work in this thread until `stop`. An interrupt (Ctrl-C) also ends it, and is raised again.

        Args:
            ready: called once the sockets are open.

        Raises:
            HandlerMisused: the handler is a coroutine function (use `await worker.serve()`) or a generator function.
            ConfigurationError: the address is in use, or keys cannot be used.
            CallerError: the worker ran before.
        """
        check_handler(self._handler, coroutines=False)
        jobs: deque[Requested | None] = deque()
        self._begin(jobs.append)
        background = BackgroundDriver(self._engine, self._look_seconds)
        background.start()
        self._overrun.start()
        try:
            if ready is not None:
                ready()
            while not self._stopping and background.broken is None:
                self._engine.run(jobs)
                if jobs and (job := jobs.popleft()) is not None and not self._stopping:
                    background.suspend()
                    try:
                        self._work(job)
                    finally:
                        self._overrun.end()
                        background.resume()
            if background.broken is not None:
                raise background.broken
            self._engine.leave()
        finally:
            if not self._engine.inherited:
                self._overrun.close()
                background.end()
                self._engine.close()

    async def serve(self, ready: Callable[[], object] | None = None) -> None:
        """Work on this event loop until `stop`, or until the task is cancelled; the handler may be a coroutine.

        Arguments and errors are those of `run`. A plain function as handler blocks the event loop while it runs.
        """
        check_handler(self._handler, coroutines=True)
        loop = asyncio.get_running_loop()
        jobs: asyncio.Queue[Requested | None] = asyncio.Queue()

        def put(job: Requested | None) -> None:
            with suppress(RuntimeError):  # The loop may be closed.
                loop.call_soon_threadsafe(jobs.put_nowait, job)

        self._open(put)
        try:
            if ready is not None:
                ready()
            while (job := await jobs.get()) is not None and not self._stopping:
                try:
                    await self._work_async(job)
                finally:
                    self._overrun.end()
        finally:
            self._overrun.close()
            await asyncio.shield(asyncio.to_thread(self._close))
        self._raise_broken()

    def stop(self) -> None:
        """End once the request in hand is answered. Any thread and any signal handler may call this."""
        self._stopping = True
        if self._put is not None:
            self._put(None)
            if self._thread is None:
                self._engine.submit(lambda now: None)  # Wakes `run`, which then sees `_stopping`.

    @property
    def keyed(self) -> bool:
        """Whether clients need a key, so that `hang_up` has an effect."""
        return self._locked

    def hang_up(self) -> None:
        """Read the access list again soon. Any thread and any signal handler may call this."""
        self._engine.hang_up()

    def _begin(self, put: Callable[[Requested | None], object]) -> None:
        if self._put is not None:
            raise CallerError("a worker runs once; make a new one")
        self._put = put
        if self._stopping:
            put(None)
        self._engine.open()
        if self._address is None:
            self._address = next(iter(self._engine.addresses.values()), "")

    def _open(self, put: Callable[[Requested | None], object]) -> None:
        self._begin(put)
        self._thread = Thread(target=self._drive, name="services works", daemon=True)
        self._thread.start()
        self._overrun.start()

    def _drive(self) -> None:
        try:
            self._engine.run()
            self._engine.leave()
        except BaseException as error:  # noqa: BLE001 - any error must reach the caller of `serve`.
            self._broken = error
        finally:
            self._engine.close()
            assert self._put is not None
            self._put(None)

    def _told(self, event: Event, now: float) -> None:
        if isinstance(event, Requested):
            assert self._put is not None
            self._put(event)
        else:
            log_event(event, now)

    def _close(self) -> None:
        if self._thread is None or self._engine.inherited:
            return
        self._engine.stop()
        self._thread.join()

    def _raise_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    # One request

    def _part(self, token: int, body: Frames) -> None:
        self._engine.submit(lambda now: self._core.reply_part(token, body, now))

    def _say_good_bye(self, gone: ThreadEvent) -> None:
        self._engine.submit(self._core.leave)
        self._engine.submit(lambda now: gone.set())

    def _work(self, job: Requested) -> None:
        self._overrun.begin()
        try:
            body = frames_of(
                awaited(self._handler(Request(job.body, job.service or self.name, partial(self._part, job.token)))),
                "the handler's result",
            )
        except Exception as error:  # noqa: BLE001 - an error of the application: logged, and the caller is answered.
            self._failed(job, error)
        except BaseException as error:
            self._failed(job, error, log=False)
            raise
        else:
            self._engine.submit(lambda now: self._core.reply(job.token, body, now))

    async def _finished(self, result: Any) -> Any:
        """Return a coroutine's result, or raise HandlerOverran at its time limit."""
        self._overrun.begin(CANCEL_SECONDS)
        try:
            async with asyncio.timeout(self._handler_timeout) as limit:
                return await result
        except TimeoutError:
            if not limit.expired():
                raise
            raise HandlerOverran(self.name, self._handler_timeout or 0.0) from None

    async def _work_async(self, job: Requested) -> None:
        self._overrun.begin()
        try:
            result = self._handler(Request(job.body, job.service or self.name, partial(self._part, job.token)))
            if inspect.isawaitable(result):
                result = await self._finished(result)
            body = frames_of(result, "the handler's result")
        except Exception as error:  # noqa: BLE001 - an error of the application: logged, and the caller is answered.
            self._failed(job, error)
        except BaseException as error:
            self._failed(job, error, log=False)
            raise
        else:
            self._engine.submit(lambda now: self._core.reply(job.token, body, now))

    def _failed(self, job: Requested, error: BaseException, *, log: bool = True) -> None:
        reason = f"{type(error).__name__}: {error}"
        if log:
            name, text = self.name or "this service", ""
            if isinstance(error, PubsubError):
                reason = text = str(error)
            _log.error("the handler of %s failed: %s", name, located(error, text))
            _log.debug("the handler of %s failed", name, exc_info=error)
        reason = reason[:REASON_LENGTH_MAX]
        self._engine.submit(lambda now: self._core.fail(job.token, reason, now))

    def __reduce__(self) -> Any:
        return no_pickling(f"a {type(self).__name__}")


def _core(
    name: str, kind: str | None, broker: str | None, bind: str | None, advertise: str | None, beats: Beats
) -> tuple[Callable[[], WorkerCore], tuple[Port, ...]]:
    if broker is not None:
        worker = core_of(kind or "mdp", WORKERS, "of worker")
        core = worker(name, broker, beats)
        return lambda: core, ()
    if bind is None:
        raise ConfigurationError("a server needs an address to bind: name one with bind=")
    server = core_of(kind or "lazy", SERVERS, "of server")
    known_as = checked([advertise], "the advertised address")[0] if advertise else bind
    return lambda: server.core(name, bind), tuple(server.ports(bind, known_as))


def _checked_beats(seconds: float | None, liveness: int | None, broker: str | None) -> Beats:
    """Raise CallerError if the heartbeats of a worker are out of range, or if it sends none."""
    beats = Beats(seconds, liveness)
    if beats != USUAL_BEATS and broker is None:
        raise CallerError("a server without a queue or broker sends no heartbeats: leave out heartbeat and liveness")
    if seconds is not None and not HEARTBEAT_SECONDS_MIN <= seconds < HEARTBEAT_SECONDS_MAX:
        allowed = f"{HEARTBEAT_SECONDS_MIN:g} to {HEARTBEAT_SECONDS_MAX:g}"
        raise CallerError(f"heartbeat={seconds:g} is not allowed; allowed: {allowed} seconds")
    if liveness is not None and liveness < 1:
        raise CallerError(f"liveness={liveness} is not allowed; allowed: 1 or more")
    return beats


def _checked_timeout(seconds: float | None) -> float | None:
    """Raise CallerError if a handler time-out is out of range."""
    if seconds is not None and not 0 < seconds < float("inf"):
        raise CallerError(f"handler_timeout={seconds:g} is not allowed; allowed: more than 0 seconds")
    return seconds


def _check_places(broker: str | None, bind: str | None, pair: Pairing | None) -> None:
    """Raise CallerError unless a worker has exactly one address."""
    if (broker is None) == (bind is None):
        raise CallerError("a worker needs either broker= or bind=, and not both")
    if pair is not None and bind is None:
        raise CallerError("one of a pair needs an address to bind; a worker of a broker cannot be one of a pair")
