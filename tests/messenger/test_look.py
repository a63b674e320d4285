"""`Messenger.look`: waiting messages are taken, no caller waits, and the sockets are given back."""

import threading
import time

import pytest

from pubsub.errors import StorageError
from tests.messenger.asking import ask, echo, soon


def test_a_look_takes_the_waiting_messages_and_does_not_wait(make):
    server, client, answers = make(), make(grace_seconds=3600), []
    peer = client.connect(server.listen("tcp://127.0.0.1:0", echo))
    client.look()
    client.send(peer, b"", lambda *_: answers.append(1))
    end = soon()
    while not answers:  # The grace keeps the I/O thread away.
        client.look()
        assert time.monotonic() < end


def test_a_look_leaves_the_sockets_to_their_driver(make):
    client, over, looked = make(), threading.Event(), []

    def drives() -> bool:
        if client._loop.turn.is_mine():  # Whoever looks meanwhile finds the turn taken.
            other = threading.Thread(target=lambda: (client.look(), looked.append(True)))
            other.start()
            other.join()
            over.set()
        return over.is_set()

    assert client.wait(drives, soon())
    assert looked


class Timed:
    """A ticker that is due once, and does something then."""

    def __init__(self, what) -> None:
        self.what, self.due = what, float("-inf")

    def deadline(self) -> float | None:
        return self.due

    def tick(self, now: float) -> None:
        self.due = None
        self.what()

    def was_interrupted(self) -> None:
        """Nobody waits here."""


def test_an_interrupted_look_gives_the_sockets_back(make):
    class Strike(BaseException):
        pass

    def was_interrupted() -> None:
        raise Strike

    server, client = make(), make(grace_seconds=3600)
    client.ticker = Timed(was_interrupted)
    peer = client.connect(server.listen("tcp://127.0.0.1:0", echo))
    with pytest.raises(Strike):
        client.look()
    assert not client.driven_here
    assert ask(client, peer, b"x")[1] == b"x"


def test_a_message_queued_during_a_look_is_sent_after_it(make):
    server, client = make(), make(grace_seconds=3600)
    peer = client.connect(server.listen("tcp://127.0.0.1:0", echo))

    def queue() -> None:
        other = threading.Thread(target=client.send, args=(peer, b"x"))
        other.start()
        other.join()

    client.ticker = Timed(queue)
    client.look()
    assert not client._loop._queue


def test_a_look_within_a_callback_does_nothing(make, until):
    server, client, looked = make(), make(), []

    def callback(*_: object) -> None:
        client.look()
        looked.append(True)

    client.send(server.listen("inproc://here", echo), b"", callback)
    until(lambda: looked)
    assert ask(client, server.listen("inproc://there", echo), b"x")[1] == b"x"


class Struck(Exception):
    """What a signal's handler raises within a callback."""


def strikes() -> None:
    raise Struck


def looks(client, peer) -> None:
    client.look()


def waits(client, peer) -> None:
    client.wait(lambda: False, soon())


def gets_an_answer(client, peer) -> None:
    client.ticker = Timed(lambda: None)
    client.send(peer, b"", lambda *_: strikes())
    client.wait(lambda: False, soon())


@pytest.mark.parametrize("drives", [looks, waits, gets_an_answer])
def test_the_driving_caller_gets_the_exception_of_a_ticker(make, drives):
    server, client = make(), make(grace_seconds=3600)
    peer = client.connect(server.listen("tcp://127.0.0.1:0", echo))
    client.ticker = Timed(strikes)
    with pytest.raises(Struck):
        drives(client, peer)
    assert not client.driven_here
    assert not client.counters.callback_errors
    assert ask(client, peer, b"x")[1] == b"x"


def test_an_internal_error_of_a_ticker_reaches_no_caller(make):
    def fails() -> None:
        raise StorageError("file", "is full")

    server, client = make(), make(grace_seconds=3600)
    peer = client.connect(server.listen("tcp://127.0.0.1:0", echo))
    client.ticker = Timed(fails)
    client.look()
    assert client.counters.callback_errors == 1
    assert ask(client, peer, b"x")[1] == b"x"
