"""A proxy and a server on threads of this process, at addresses that Spark's workers can reach."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import apsw

from pubsub.config.settings import ProxySettings, ServerSettings
from pubsub.protocol import Outcome, Put, Read, Records, encode_batch
from pubsub.proxy.process import ProxyProcess
from pubsub.server.process import ServerProcess
from pubsub.spark.identity import NOBODY, Identity

STORE = "0123456789abcdef"


class Broker:
    """Runs until `close`; the server may be stopped and started in between.

    Args:
        directory: for what they keep.
        proxy: further settings of the proxy.
        identity: as whom it puts and reads.
        settings: further ones of the server.
    """

    def __init__(
        self, directory: Path, proxy: dict[str, Any] | None = None, identity: Identity = NOBODY, **settings: Any
    ) -> None:
        self.directory = directory
        # Spark may take longer to subscribe than servers keep what nobody is subscribed to.
        self._settings = {"retention_hold_seconds": 3600.0, **settings}
        self._proxy = ProxyProcess(
            ProxySettings(
                **{"id": "p1", "bind": "tcp://127.0.0.1:0", "directory": directory / "p1", "startup_wait_seconds": 0.0}
                | (proxy or {})
            )
        )
        self._proxy.start()
        self._proxy_thread = _run(self._proxy.run)
        self.address = self._proxy.bind
        self.start_server()
        self.link = identity.connect([self.address], 30.0)
        self._last: dict[str, int] = {}

    def start_server(self) -> None:
        self._server = ServerProcess(
            ServerSettings(id="s1", proxies=(self.address,), directory=self.directory / "s1", **self._settings)
        )
        self._server.start()
        self._server_thread = _run(self._server.run)

    def stop_server(self) -> None:
        self._server.stop()
        self._server_thread.join(10)
        self._server.close()

    def put(self, topic: str, values: Sequence[bytes], batch: int = 1000) -> None:
        """Puts records in batches of so many."""
        for start in range(0, len(values), batch):
            part = values[start : start + batch]
            last = self._last.get(topic, 0)
            body = encode_batch(part)
            message = Put("alice", topic, last + 1, STORE, len(part), last, crc32(body), body=body)
            status = self.link.ask(message)  # type: ignore[arg-type]
            assert status.outcome is Outcome.SUCCESS
            self._last[topic] = last + len(part)

    def records(self, topic: str) -> list[bytes]:
        """All that is stored of a topic, in order."""
        out: list[bytes] = []
        after = None
        while True:
            status = self.link.ask(Read(self.link.asker.client, topic, after, records_max=65_536))
            if status.outcome is not Outcome.SUCCESS:
                return out
            out += Records(bytes(status.body)).bodies()
            after = status.message

    def database(self) -> apsw.Connection:
        """The server's store; for while it is stopped."""
        return apsw.Connection(str(self.directory / "s1" / "server.db"))

    def close(self) -> None:
        self.link.close()
        self.stop_server()
        self._proxy.stop()
        self._proxy_thread.join(10)
        self._proxy.close()


def _run(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread
