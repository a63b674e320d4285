"""A service in the foreground: signals, the ready line, an orderly end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from typing import Any

from pubsub.console.terminal import announce
from pubsub.services.engine import Engine
from pubsub.services.worker import Worker


def run_service(engine: Engine, ready: Callable[[Mapping[str, str]], str]) -> None:
    """Run a service until SIGTERM or SIGINT, and print a line when it is ready. For the main thread only.

    With keys, SIGHUP makes the service read its access list at once. Without keys, SIGHUP ends the process as usual.

    Args:
        engine: not open yet; it is closed at the end.
        ready: makes the ready line from the bound addresses of the ports.

    Raises:
        ConfigurationError: as of `Engine.open`.
        StorageError: as of `Engine.run`.
    """
    before: dict[signal.Signals, Any] = {}
    try:
        engine.open()
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, lambda *_: engine.stop())
        if engine.keyed:
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: engine.hang_up())
        announce(ready(engine.addresses))
        engine.run()
        engine.leave()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        engine.close()


def run_worker(worker: Worker, ready: Callable[[], str]) -> None:
    """Run a worker until SIGTERM or SIGINT, and answer the request in hand first. For the main thread only.

    A second signal ends the worker at once.

    Args:
        worker: it has not run before.
        ready: makes the line for standard output when the worker is ready.

    Raises: as of `Worker.run`.
    """
    signals: list[int] = []

    def end(number: int, _: object) -> None:
        signals.append(number)
        if len(signals) > 1:
            raise KeyboardInterrupt
        worker.stop()

    before: dict[signal.Signals, Any] = {}
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, end)
        if worker.keyed:
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: worker.hang_up())
        worker.run(lambda: announce(ready()))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
