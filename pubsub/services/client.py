"""`ServiceClient`: calls of services, for threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final

from pubsub.services.calling import Body, Reply
from pubsub.services.shared import ServiceClientBase

LOOK_SECONDS: Final = 0.5
"""A signal may come just before a wait, and its handler then runs when the wait ends: none takes longer than this."""


class ServiceClient(ServiceClientBase):
    """Calls services; any thread may use it.

        with ServiceClient("tcp://127.0.0.1:5555") as client:
            print(client.call("echo", b"hello").body)

    Args:
        address: of the broker, queue or server; several where the kind takes several.
        kind: the pattern: a key of `pubsub.services.kinds.CALLERS`, such as "mdp", "lazy".
        timeout: seconds for the reply to one try; None: 2.5, or what is usual for the kind.
        tries: of one call, the first included; None: 3, or what is usual for the kind.
        key_file: our secret key, where the other side asks for keys.
        broker_key: its public key, `pk_…`; several where there are several addresses.
        locks: the keys, for who has them in memory.
        context: a ZeroMQ context to share, which `inproc://` addresses need.

    Raises:
        ConfigurationError: an address is none, or a key cannot be used.
        CallerError: there is no such kind, or a number cannot be.
    """

    def call(
        self,
        service: str,
        body: Body,
        *,
        timeout: float | None = None,
        tries: int | None = None,
        on_part: Callable[[bytes], object] | None = None,
    ) -> Reply:
        """Call a service and wait for its reply.

        Args:
            service: its name; "" where the pattern names none (lazy, freelance).
            body: bytes, or a sequence of frames.
            timeout: seconds for one try; None: as the client's.
            tries: None: as the client's.
            on_part: is given each part of a reply as it comes, by another thread; None: they are in `Reply.parts`.

        Raises:
            CallTimeout: nobody answered; whether the work was done is not known.
            NoWorker: the same, and the broker says that nobody serves it. CallRefused: it was refused.
            NotLetIn: the other side does not know our key.
            CallerError: an argument cannot be, or the client is closed.
        """
        future = self.submit(service, body, timeout=timeout, tries=tries, on_part=on_part)
        try:
            while not future.done():
                with suppress(TimeoutError):
                    future.exception(LOOK_SECONDS)
            return future.result()
        finally:
            future.cancel()  # Where an interrupt ends the wait; else it has no effect.

    def close(self) -> None:
        """Give up what is under way and release the sockets."""
        self._calling.close()

    def __enter__(self) -> ServiceClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
