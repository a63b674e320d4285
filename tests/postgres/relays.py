"""A relay on a thread of the test, beside a cluster on threads and a real database."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from pubsub import Client, Embedded
from pubsub.client.relaying.running import OpenedClient, Running
from pubsub.config.databases import DatabaseUrl
from tests.faults.cluster import until


class ThreadedRelay:
    """A relay; a context manager that stops it.

    Attributes:
        states: True for each time that it became active, False for each time that it began to stand by.
    """

    def __init__(self, cluster: Embedded, url: str, directory: Path, name: str | None = None, **options: Any) -> None:
        self.states: list[bool] = []
        self.stop, self.failure = threading.Event(), ""

        def opened(client_id: str) -> OpenedClient:
            client = cluster.client(client_id, database=url, directory=directory, **options)
            assert isinstance(client, Client)
            return OpenedClient(client._held, client.close)

        self.running = Running(DatabaseUrl(url), name, opened, self.stop, lambda _, active: self.states.append(active))
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.running.run()
        except BaseException as error:  # noqa: BLE001 - the test asks for it.
            self.failure = f"{type(error).__name__}: {error}"

    def __enter__(self) -> ThreadedRelay:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def wait(self, active: bool) -> None:
        """Wait until it is active, or stands by."""
        until(lambda: self.states[-1:] == [active] or self.failure, f"the relay is {active=}")
        assert not self.failure
