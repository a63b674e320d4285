"""A machine too busy for a call to ask the service in time: the call does not report an empty topic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pubsub.base.clock import SystemClock
from pubsub.client import Client
from pubsub.embedded import Embedded
from pubsub.errors import Unavailable


class Stalled(SystemClock):
    """The clock of a machine that is busy with other work for a while."""

    seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.seconds


@pytest.mark.parametrize(
    "call",
    [
        lambda client, topic: client.get(topic, timeout=0.5),
        lambda client, topic: client.get_many(topic, timeout=0.5),
        lambda client, topic: next(client.messages(topic, timeout=0.5), None),
    ],
    ids=["get", "get_many", "messages"],
)
def test_a_call_stalled_until_its_timeout_does_not_report_an_empty_topic(
    client: Client,
    cluster: Embedded,
    topic: str,
    nowhere: str,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[Client, str], object],
) -> None:
    client.subscribe(topic)
    name, clock = client.name, Stalled()
    client.close()
    with Client(name, proxies=[nowhere], directory=cluster.directory / "clients", clock=clock) as alone:
        until = alone._session.until

        def stalls(*arguments: float | None) -> float:
            found = until(*arguments)
            clock.seconds += 1.0
            return found

        monkeypatch.setattr(alone._session, "until", stalls)
        with pytest.raises(Unavailable, match="get"):
            call(alone, topic)
