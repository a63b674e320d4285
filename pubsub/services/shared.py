"""What `ServiceClient` and `AsyncServiceClient` share: how they are opened, and calls that are not waited for."""

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

    from pubsub.services.entrance import Locks


class ServiceClientBase:
    """What callers share. Arguments as `ServiceClient`'s."""

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
        """Call a service and do not wait: many calls may be under way. Arguments as `ServiceClient.call`.

        A call has its time from now on, also where it waits for a connection of this client's (LANES_MAX): who submits
        very many at once gives them a longer timeout.

        Returns:
            The reply to come. `cancel()` takes the call back.
        """
        patience = _patience(self._calling.patience, timeout, tries)
        return self._calling.submit(service, body, patience, on_part)

    def __reduce__(self) -> Any:
        return no_pickling(f"a {type(self).__name__}")


def _patience(usual: Patience, timeout: float | None, tries: int | None) -> Patience:
    return check_patience(usual.try_seconds if timeout is None else timeout, usual.tries if tries is None else tries)
