"""`ServiceClient`: calls of services, for threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final

from pubsub.services.calling import Body, Reply
from pubsub.services.client_base import ServiceClientBase

LOOK_SECONDS: Final = 0.5
"""Longest single wait. A signal that comes just before a wait is handled when the wait ends."""


class ServiceClient(ServiceClientBase):
    """Calls services. Any thread may use it.

        with ServiceClient("tcp://127.0.0.1:5555") as client:
            print(client.call("echo", b"hello").body)

    Args:
        address: address of the broker, queue or server; several if the kind takes several.
        kind: the pattern: a key of `pubsub.services.kinds.CALLERS`, such as "mdp" or "lazy".
        timeout: seconds that one try waits for the reply; None: 2.5, or the default of the kind.
        tries: tries of one call, the first included; None: 3, or the default of the kind.
        key_file: file with the secret key of this client, if the other side requires keys.
        broker_key: public key of the other side, `pk_…`; several if there are several addresses.
        locks: the keys, for a program that has them in memory.
        context: a ZeroMQ context to share, which `inproc://` addresses need.

    Raises:
        ConfigurationError: an address is invalid, or a key cannot be used.
        CallerError: there is no such kind, or a number is out of range.
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
            service: name of the service; "" if the pattern has no names (lazy, freelance).
            body: bytes, or a sequence of frames.
            timeout: seconds for one try; None: the timeout of the client.
            tries: number of tries; None: the tries of the client.
            on_part: receives each part of a reply as it comes, in another thread; None: the parts are in `Reply.parts`.

        Raises:
            CallTimeout: no reply came; the service may or may not have done the work.
            NoWorker: no reply came, and the broker answers that the service has no worker.
            CallRefused: the service refused the call.
            KeyRefused: the other side does not know the key of this client.
            CallerError: an argument is invalid, or the client is closed.
        """
        future = self.submit(service, body, timeout=timeout, tries=tries, on_part=on_part)
        try:
            while not future.done():
                with suppress(TimeoutError):
                    future.exception(LOOK_SECONDS)
            return future.result()
        finally:
            future.cancel()  # Withdraws the call if an interrupt ended the wait.

    def close(self) -> None:
        """Withdraw the calls under way and close the sockets."""
        self._calling.close()

    def __enter__(self) -> ServiceClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
