"""How property tests draw their examples and how processes are started, everywhere."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.faults.forkserver import forking
from tests.postgres.fixtures import database, left_out, own_postgres, pgbouncer, postgres

__all__ = ["database", "own_postgres", "pgbouncer", "postgres"]  # Fixtures: pytest finds them by their names here.

_PATIENT = [HealthCheck.too_slow]

settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=_PATIENT)
"""The same examples in every run, however slow the machine: what fails for one fails for all."""

settings.register_profile("some", deadline=None, derandomize=True, suppress_health_check=_PATIENT, max_examples=25)
"""The first of them: for each change. Under each Python, `scripts/matrix` draws all of them by night."""

settings.register_profile("searching", deadline=None, suppress_health_check=_PATIENT, max_examples=1000)
"""Others each time, and more of them: `pytest --hypothesis-profile searching`."""

settings.register_profile("few", deadline=None, derandomize=True, suppress_health_check=_PATIENT, max_examples=20)
"""The first of them: for who has drawn all of them already under another Python."""

settings.load_profile("same")


def pytest_configure() -> None:
    """Have SIGINT interrupt, here and in what tests start: whoever is started in the background has it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in os.environ if name.startswith("PUBSUB_") and not name.endswith("_TESTS")]:
        del os.environ[name]  # A developer may have a cluster of their own, as the README's session sets it.


_opened: dict[threading.Thread, str] = {}
"""Threads for which the end of Python waits, each with the test behind which it was first seen."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Note threads that a test leaves open."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            _opened.setdefault(thread, item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while thousands of tests are collected, and later not among them: a quarter of that time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say plainly which tests were left out here, and why: `scripts/test` repeats these lines at its end."""
    for reason, count in left_out.items():
        terminalreporter.write_line(f"left out: {count} test{'s' * (count > 1)} with PostgreSQL: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Let SIGABRT print stacks until Python has ended: a thread that a test leaves open hangs behind the last test."""
    faulthandler.enable()
    for thread, test in _opened.items():
        if thread.is_alive():
            print(f"\na thread is still open: {thread.name}, first seen behind {test}", file=sys.stderr)


@pytest.fixture(scope="session", autouse=True)
def _forking() -> Iterator[None]:
    """Processes of clusters are forked: of what a start of Python costs, most is imports, hundreds of times."""
    with forking():
        yield
