"""An opening that a signal's exception interrupts at any instruction leaves nothing open."""

from __future__ import annotations

from types import FunctionType

import pytest

from pubsub.client import Client
from pubsub.client.client_base import ClientBase
from pubsub.client.session import Session
from pubsub.client.storage.store import Store
from pubsub.embedded import Embedded
from tests.client.striking import Strike, Striker


@pytest.mark.parametrize("within", [ClientBase.__init__, Session.__init__, Store.__init__])
@pytest.mark.parametrize("known", [False, True])
def test_the_clients_name_is_free_after_an_opening_interrupted_anywhere(
    cluster: Embedded, within: FunctionType, known: bool
) -> None:
    """The exception is kept, as by a debugger or a logger, and with it all objects in its frames."""
    kept: list[Strike] = []
    at, name = 0, f"{within.__qualname__}-{known}".replace(".", "-")
    while True:
        at += 1
        named = name if known else f"{name}-{at}"
        made: list[Client] = []
        striker = Striker(at, within=within)
        try:
            striker.run(lambda named=named, made=made: made.append(cluster.client(named)))
        except Strike as error:
            kept.append(error)
        for client in made:
            client.close()
        if not striker.place:
            break
        try:
            cluster.client(named).close()
        except Exception as error:
            raise AssertionError(f"{at}: {striker.place}") from error
    assert len(kept) >= 5  # Later Pythons report fewer instructions.
