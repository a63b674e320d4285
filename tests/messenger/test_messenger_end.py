"""The Messenger over real sockets: how it is closed, interrupted, disconnected, and opened again."""

import os
import threading
import time

import pytest

from pubsub.errors import CallerError, ConfigurationError
from pubsub.messenger import Messenger
from pubsub.messenger.framing import FIRST_CALLBACK
from pubsub.messenger.messenger import _CallbackIds
from tests.messenger.asking import ask, echo, soon

# The end


@pytest.mark.parametrize("endpoint_of", ["tcp://127.0.0.1:1", "inproc://nobody"])
def test_close_is_prompt_and_abandons_the_pending_messages(endpoint_of):
    before = set(threading.enumerate())
    client = Messenger()
    for _ in range(100):
        client.send(endpoint_of, b"nobody hears this", print)
    begun = time.monotonic()
    client.close()
    client.close()
    assert time.monotonic() - begun < 2
    assert client.closed
    with pytest.raises(CallerError, match="closed"):
        client.send(endpoint_of, b"more")
    assert "messenger" not in [thread.name for thread in set(threading.enumerate()) - before]


def test_close_ends_the_wait_of_callers(make, until):
    client = make()
    client.connect("inproc://nobody")
    outcome = []
    threads = [threading.Thread(target=lambda: outcome.append(client.wait(lambda: False, soon(60)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    client.close()
    for thread in threads:
        thread.join(10)
    assert outcome == [False] * 3


def test_close_inside_a_callback_closes(make, until):
    server, client, closed = make(), Messenger(), []
    bound = server.listen("tcp://127.0.0.1:0", echo)

    def callback(*_) -> None:
        client.close()
        closed.append(1)

    client.send(bound, b"", callback)
    until(lambda: closed)
    client.close()
    assert client.closed


def test_a_messenger_that_was_never_used_closes():
    before = set(threading.enumerate())
    unused = Messenger()
    unused.close()
    assert unused.closed
    assert set(threading.enumerate()) <= before


def test_an_endpoint_that_was_closed_can_be_opened_again_at_once():
    for _ in range(10):
        first = Messenger()
        bound = first.listen("tcp://127.0.0.1:0", echo)
        first.close()
        with Messenger() as again:
            assert again.listen(bound, echo) == bound


def test_a_disconnected_peer_gets_nothing_more_and_the_others_are_unharmed(make, until):
    server, client, requests = make(), make(), []
    bound = server.listen("tcp://127.0.0.1:0", lambda request: (requests.append(request.contents), request.reply(b"")))
    one, two = client.connect(bound), client.connect(bound)
    client.disconnect(one)
    client.send(one, b"lost")
    ask(client, two, b"heard")
    assert requests == [b"heard"]


def test_an_address_in_use_or_invalid_is_a_configuration_error(make):
    server = make()
    bound = server.listen("tcp://127.0.0.1:0", echo)
    with pytest.raises(ConfigurationError, match="in use"):
        server.listen(bound, echo)
    with pytest.raises(ConfigurationError, match="nonsense"):
        server.send("nonsense", b"")


def test_a_server_that_replaces_another_at_its_address_answers_pending_requests(make, until):
    first, client, answers = Messenger(), make(retry_seconds=0.05, retry_seconds_max=0.2), []
    bound = first.listen("tcp://127.0.0.1:0", lambda request: None)
    for number in range(10):
        client.send(bound, b"%d" % number, lambda _, contents, __: answers.append(int(contents)))
    until(lambda: first.counters.received >= 10)
    first.close()
    make().listen(bound, echo)
    until(lambda: len(answers) == 10)
    assert sorted(answers) == list(range(10))


def test_an_interrupt_right_after_a_caller_took_the_turn_gives_the_turn_back(make, monkeypatch):
    messenger = make()
    peer = messenger.connect(messenger.listen("tcp://127.0.0.1:0", lambda request: request.reply(b"pong")))
    takes = messenger._loop.turn.caller_takes

    def interrupted(*arguments):
        assert takes(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(messenger._loop.turn, "caller_takes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        messenger.wait(lambda: False, time.monotonic() + 20)
    monkeypatch.undo()
    answers = []
    messenger.send(peer, b"ping", lambda peer, contents, frames: answers.append(contents))
    assert messenger.wait(lambda: bool(answers), time.monotonic() + 20)


def test_a_recovery_at_the_end_of_another_threads_turn_does_no_harm(make, monkeypatch):
    messenger, answers, moves, may_end = make(), [], threading.Event(), threading.Event()
    loop = messenger._loop
    take = loop.turn.try_take

    def move(now: float) -> None:
        moves.set()
        may_end.wait(20)

    other = threading.Thread(target=lambda: loop.enqueue(move))
    other.start()
    assert moves.wait(20)

    def try_take() -> bool:
        may_end.set()
        other.join()
        return take()

    monkeypatch.setattr(loop.turn, "try_take", try_take)
    messenger.recover()  # As whoever leaves a call by an exception does.
    monkeypatch.undo()
    peer = messenger.connect(messenger.listen("tcp://127.0.0.1:0", lambda request: request.reply(b"pong")))
    messenger.send(peer, b"ping", lambda peer, contents, frames: answers.append(contents))
    assert messenger.wait(lambda: bool(answers), time.monotonic() + 20)


def test_an_interrupt_during_the_start_of_the_thread_leaves_a_closable_messenger(monkeypatch):
    messenger = Messenger()

    def interrupted(thread):
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        messenger.connect("tcp://127.0.0.1:9")
    monkeypatch.undo()
    messenger.close()
    assert messenger.closed


def test_ids_of_callbacks_are_fetched_many_at_a_time_and_no_two_threads_get_the_same(monkeypatch):
    asked = []

    def urandom(size: int, really=os.urandom) -> bytes:
        asked.append(size)
        return really(size)

    monkeypatch.setattr("pubsub.messenger.messenger.os.urandom", urandom)
    new = _CallbackIds()
    taken: list[list[int]] = [[] for _ in range(4)]
    threads = [threading.Thread(target=lambda mine=mine: mine.extend(new() for _ in range(2_000))) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [each for mine in taken for each in mine]
    assert len(set(ids)) == 8_000
    assert all(each >= FIRST_CALLBACK and each % 2 == FIRST_CALLBACK % 2 and each < 1 << 63 for each in ids)
    assert len({each >> 48 for each in ids}) > 4_000, "they do not count on from each other"
    assert 8_000 / 512 <= len(asked) <= 8_000 / 512 + 4, "a question for each ID hands the interpreter's lock around"
