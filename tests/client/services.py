"""Share helpers of service tests: an effect that can be counted, and a worker on another thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pubsub.client import Client, Request, Transaction
from pubsub.errors import Unavailable


def effect(request: Request, transaction: Transaction) -> bytes:
    """Do something that can be counted, and reply with it."""
    transaction.execute("insert into done values (?, ?)", (request.id, request.body))
    if request.body == b"bad":
        raise ValueError("bad call")
    return b"re:" + request.body


@contextmanager
def served(worker: Client, service: str, handler: Any = effect, **named: Any) -> Iterator[None]:
    """Run the block while another thread serves; the worker is open again afterwards."""
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            with suppress(Unavailable):  # On a machine that is busy an answer may take longer.
                worker.serve(service, handler, timeout=0.2, **named)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
