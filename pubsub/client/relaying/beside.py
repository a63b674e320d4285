"""A relay on a thread of a process whose own client asked for it: `Client(…, database=…, relay=True)`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from pubsub.base.threads import start_thread
from pubsub.client.relaying.running import OpenedClient, Running
from pubsub.config.databases import DatabaseUrl
from pubsub.errors import PubsubError, StorageError

STOP_SECONDS: Final = 30.0
"""Longest wait for the thread at the end. The database decides its transaction, with or without it."""

_log: Final = logging.getLogger("pubsub.relay")


class RelayBeside:
    """A running relay, active or as a spare.

    Args:
        url: of the database.
        open_client: opens the relay's client by its ID.

    Raises:
        ConfigurationError, StorageError: as of `Running`.
    """

    def __init__(self, url: DatabaseUrl, open_client: Callable[[str], OpenedClient]) -> None:
        self._stop = threading.Event()
        self.running = Running(url, None, open_client, self._stop, lambda name, active: None)
        self._thread = threading.Thread(target=self._run, name=f"relay {self.running.name}", daemon=True)
        if not start_thread(self._thread):
            self.running.close()
            raise StorageError(str(url), "no thread can be started for the relay")

    def _run(self) -> None:
        try:
            self.running.run()
        except PubsubError as error:
            _log.error("the relay %s has ended: %s", self.running.name, error)

    def ask_to_stop(self) -> None:
        """Ask the relay to end, and do not wait."""
        self._stop.set()

    def stop(self) -> None:
        """End the relay; the next one sends what is in its outbox."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS)
