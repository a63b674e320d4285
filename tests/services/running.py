"""Services for tests: as processes of `pubsub service …`, or on threads of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from pubsub.services.core.queue import BACKEND, FRONTEND, PirateQueue
from pubsub.services.engine import Engine
from pubsub.services.kinds import QUEUES
from pubsub.services.worker import Worker
from tests.faults.cluster import Process
from tests.ports import free_port


def address() -> str:
    """A free one."""
    return f"tcp://127.0.0.1:{free_port()}"


class Town:
    """Processes of one test, each ended with it; a context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: list[Process] = []

    def __enter__(self) -> Town:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.end()

    def service(self, name: str, *command: str) -> Process:
        """`pubsub service COMMAND…`, started."""
        process = Process(name, self.directory, ["-m", "pubsub", "service", *command])
        self.processes.append(process)
        return process.start()


class Running:
    """Queues and workers on threads; a context manager."""

    def __init__(self) -> None:
        self._ends: list[Callable[[], object]] = []

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for end in reversed(self._ends):
            end()

    def engine(self, engine: Engine) -> Engine:
        """Open an engine and run it."""
        engine.open()
        thread = threading.Thread(target=engine.run, daemon=True)
        thread.start()

        def end() -> None:
            engine.stop()
            thread.join()
            engine.close()

        self._ends.append(end)
        return engine

    def queue(self, kind: str, **named: Any) -> tuple[str, str]:
        """A queue; its addresses for clients and for workers."""
        core = QUEUES[kind]("queue", 0.2, 3)
        ports = PirateQueue.ports("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
        engine = self.engine(Engine(core, ports, **named))
        return engine.addresses[FRONTEND], engine.addresses[BACKEND]

    def worker(self, worker: Worker) -> Worker:
        """Run a worker; it returns once its sockets are open."""
        opened = threading.Event()
        thread = threading.Thread(target=worker.run, args=(opened.set,), daemon=True)
        thread.start()
        assert opened.wait(30.0)

        def end() -> None:
            worker.stop()
            thread.join()

        self._ends.append(end)
        return worker
