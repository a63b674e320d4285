"""The thread that drives a worker's sockets while its handler runs.

The rule is docs/explanation/services-engine.md, E8.
"""

from __future__ import annotations

from threading import get_ident

import pytest

from pubsub.services.background_driver import BackgroundDriver
from pubsub.services.core.interface import BaseCore
from pubsub.services.engine import Engine
from tests.faults.cluster import until


class Ticking(BaseCore):
    """Notes who drives."""

    def __init__(self) -> None:
        super().__init__()
        self.drivers: list[int] = []
        self._due = 0.0
        self.breaks = False
        self.enough: list[bool] = []
        self.wanted = 0

    def timer(self) -> float:
        return self._due

    def tick(self, now: float) -> None:
        if self.breaks:
            raise RuntimeError("broken")
        self.drivers.append(get_ident())
        if len(self.drivers) == self.wanted:
            self.enough.append(True)
        self._due = now + 0.01


def test_another_thread_drives_while_the_first_is_away_for_long_and_only_then() -> None:
    core = Ticking()
    engine = Engine(core)
    engine.open()
    background = BackgroundDriver(engine)
    background.start()
    try:
        for _ in range(3):
            before = len(core.drivers)
            core.enough, core.wanted = [], before + 30
            engine.run(core.enough)
            assert set(core.drivers[before:]) == {get_ident()}
            background.suspend()
            mark = len(core.drivers)
            until(lambda mark=mark: len(core.drivers) >= mark + 3, "somebody else drives")
            background.resume()
            assert get_ident() not in core.drivers[mark:]
    finally:
        background.end()
        engine.close()


def test_an_error_in_the_background_is_kept_for_the_next_caller() -> None:
    core = Ticking()
    engine = Engine(core)
    engine.open()
    background = BackgroundDriver(engine)
    background.start()
    core.breaks = True
    background.suspend()
    until(lambda: background.broken is not None, "it broke")
    background.resume()
    background.end()
    engine.close()
    with pytest.raises(RuntimeError, match="broken"):
        raise background.broken or AssertionError
