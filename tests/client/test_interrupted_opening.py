"""An opening that a signal's exception interrupts at any instruction leaves nothing open."""

from __future__ import annotations

from types import FunctionType

import pytest

from pubsub.client import Client
from pubsub.client.client_base import ClientBase
from pubsub.client.session import Session
from pubsub.client.storage.store import Store
from pubsub.embedded import Embedded
from tests.client.striking import Strike, Striker, by_day_some, places


@pytest.mark.parametrize("within", [ClientBase.__init__, Session.__init__, Store.__init__])
@pytest.mark.parametrize("known", [False, True])
@by_day_some
def test_the_clients_name_is_free_after_an_opening_interrupted_anywhere(
    cluster: Embedded, within: FunctionType, known: bool, sample: int | None
) -> None:
    """The exception is kept, as by a debugger or a logger, and with it all objects in its frames."""
    kept: list[Strike] = []
    name = f"{within.__qualname__}-{known}-{sample}".replace(".", "-")

    def opened(at: int) -> Striker:
        named = name if known else f"{name}-{at}"
        made: list[Client] = []
        striker = Striker(at, within=within)
        try:
            striker.run(lambda: made.append(cluster.client(named)))
        except Strike as error:
            kept.append(error)
        for client in made:
            client.close()
        try:
            cluster.client(named).close()
        except Exception as error:
            raise AssertionError(f"{at}: {striker.place}") from error
        return striker

    opened(0)
    for at in places(opened(0).count if known else opened(-1).count, sample, 8):
        opened(at)
    assert len(kept) >= 5  # Later Pythons report fewer instructions.
