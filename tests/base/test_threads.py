"""A thread starts, or the system refuses it; an exception of a signal handler is not changed."""

from __future__ import annotations

import inspect
import sys
import threading
from types import FrameType
from typing import Any

import pytest

from pubsub.base.threads import start_thread


class Strike(BaseException):
    """An exception of a signal handler."""


def striking(frame: FrameType, event: str, _: Any) -> Any:
    """Interrupt `Condition.wait` behind the release of its lock, before its `try`."""
    if frame.f_code is not threading.Condition.wait.__code__:
        return striking
    lines, first = inspect.getsourcelines(frame.f_code)
    if event == "line" and lines[frame.f_lineno - first].strip() == "gotit = False":
        raise Strike
    return striking


def test_an_exception_of_a_signal_handler_within_the_wait_for_the_thread_reaches_the_caller() -> None:
    held, ran = threading.Lock(), threading.Event()
    thread = threading.Thread(target=ran.set)
    started: Any = thread._started  # type: ignore[attr-defined]
    says_so = started.set

    def late() -> None:
        with held:
            says_so()

    started.set = late
    before = sys.gettrace()
    with held:
        sys.settrace(striking)
        try:
            with pytest.raises(Strike):
                start_thread(thread)
        finally:
            sys.settrace(before)
    assert ran.wait(120.0)
    thread.join(120.0)


@pytest.mark.parametrize("handling", [False, True])
def test_a_refused_thread_is_reported_also_while_an_exception_is_handled(
    monkeypatch: pytest.MonkeyPatch, handling: bool
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    name = next(name for name in ("_start_joinable_thread", "_start_new_thread") if hasattr(threading, name))
    monkeypatch.setattr(threading, name, refuses)
    if not handling:
        assert not start_thread(threading.Thread(target=int))
        return
    try:
        raise Strike
    except Strike:
        assert not start_thread(threading.Thread(target=int))


def test_a_started_thread_runs() -> None:
    ran = threading.Event()
    thread = threading.Thread(target=ran.set)
    assert start_thread(thread)
    assert ran.wait(120.0)
    thread.join(120.0)
