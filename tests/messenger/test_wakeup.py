"""The events that end the sleep of a polling loop."""

import select

from pubsub.messenger.wakeup import Wakeup


def test_a_waker_makes_a_poll_return_once():
    wakeup = Wakeup()
    try:
        assert not select.select([wakeup], [], [], 0)[0]
        for _ in range(100_000):
            wakeup.set()
        assert select.select([wakeup], [], [], 0)[0]
        wakeup.clear()
        assert not select.select([wakeup], [], [], 0)[0]
        assert wakeup.writer_fileno() != wakeup.fileno()
    finally:
        wakeup.close()
