"""Start a thread on a thread that signal handlers may interrupt."""

from __future__ import annotations

import sys
from threading import Thread


def start_thread(thread: Thread) -> bool:
    """Start a thread. Return False if the system refuses another one.

    `Thread.start` waits on a `threading.Condition`. An exception of a signal handler between its release of the lock
    and its `try` leaves that wait as `RuntimeError("release unlocked lock")`, though the thread runs. The caller gets
    the handler's exception here.
    """
    handled = sys.exception()
    try:
        thread.start()
    except RuntimeError as error:
        interrupting = error.__context__
        if interrupting is None or interrupting is handled:
            return False
    else:
        return True
    raise interrupting
