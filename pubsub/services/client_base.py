"""The common part of `ServiceClient` and `AsyncServiceClient`: how they open, and calls without waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from pubsub.base.forks import no_pickling
from pubsub.services.calling import Body, Calling, Reply, check_patience
from pubsub.services.core.interface import Patience
from pubsub.services.keys import find_locks
from pubsub.services.kinds import USUAL
from pubsub.services.options import checked

if TYPE_CHECKING:
    import zmq

    from pubsub.services.access import Locks


class ServiceClientBase:
    """The common part of callers. Arguments as in `ServiceClient`."""

    def __init__(
        self,
        address: str | Sequence[str],
        *,
        kind: str = "mdp",
        timeout: float | None = None,
        tries: int | None = None,
        key_file: str | None = None,
        broker_key: str | Sequence[str] = (),
        locks: Locks | None = None,
        context: zmq.Context[Any] | None = None,
    ) -> None:
        patience = _patience(USUAL.get(kind, Patience()), timeout, tries)
        addresses = checked([address] if isinstance(address, str) else list(address), "the address")
        if locks is None:
            expected = [broker_key] if isinstance(broker_key, str) else list(broker_key)
            locks = find_locks("this client", dials=addresses, key_file=key_file, expected=expected)
        self._calling = Calling(addresses, kind, patience, locks, context)

    def submit(
        self,
        service: str,
        body: Body,
        *,
        timeout: float | None = None,
        tries: int | None = None,
        on_part: Callable[[bytes], object] | None = None,
    ) -> Future[Reply]:
        """Start a call without waiting for its reply. Many calls may be under way.

        Arguments are those of `ServiceClient.call`.

        The time of a call starts now, even if the call waits for one of this client's connections (LANES_MAX). A
        program that submits very many calls at once needs a longer timeout.

        Returns:
            The future reply. `cancel()` withdraws the call.
        """
        patience = _patience(self._calling.patience, timeout, tries)
        return self._calling.submit(service, body, patience, on_part)

    def __reduce__(self) -> Any:
        return no_pickling(f"a {type(self).__name__}")


def _patience(usual: Patience, timeout: float | None, tries: int | None) -> Patience:
    return check_patience(usual.try_seconds if timeout is None else timeout, usual.tries if tries is None else tries)
