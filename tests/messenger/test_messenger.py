"""The Messenger over real sockets: tcp, ipc and inproc, many threads, callers that drive and callers that do not."""

import contextlib
import doctest
import logging
import threading
import time

import pytest
import zmq

import pubsub.messenger
from pubsub.errors import CallerError, TooLarge
from pubsub.messenger import Callback
from tests.messenger.asking import ask, echo, soon


def test_the_example_of_the_package_runs():
    outcome = doctest.testmod(pubsub.messenger)
    assert (outcome.failed, outcome.attempted) == (0, 3)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("retry", [False, True])
def test_a_request_is_answered_to_a_caller_that_waits(make, endpoint, idempotent, retry):
    server, client = make(), make()
    peer = client.connect(server.listen(endpoint, echo, idempotent=idempotent))
    for number in range(20):
        assert ask(client, peer, b"%d" % number, retry=retry) == (peer, b"%d" % number, [])
    assert client.callbacks == 0


def test_a_request_is_answered_without_any_caller_waiting(make, endpoint, until):
    server, client, answers = make(), make(), []
    bound = server.listen(endpoint, echo)
    for number in range(20):
        client.send(bound, b"%d" % number, lambda _, contents, __: answers.append(contents))
    until(lambda: len(answers) == 20)
    assert sorted(answers, key=int) == [b"%d" % number for number in range(20)]


def test_an_endpoint_may_be_named_before_it_is_opened(make, tmp_path, until):
    server, client, answers = make(), make(), []
    client.send(f"ipc://{tmp_path}/later", b"early", lambda _, contents, __: answers.append(contents))
    until(lambda: client.counters.sent)
    server.listen(f"ipc://{tmp_path}/later", echo)
    until(lambda: answers == [b"early"])


def test_large_bodies_go_both_ways(make, endpoint):
    server, client = make(), make()
    body = bytes(range(256)) * 8192
    _, head, frames = ask(client, server.listen(endpoint, echo), [b"head", memoryview(body), b"tail"])
    assert (head, frames) == (b"head", [body, b"tail"])


def test_an_echo_needs_no_server_loop_to_answer(make, endpoint):
    def unexpected(request) -> None:
        raise AssertionError("the server loop was called")

    server, client = make(), make()
    bound = server.listen(endpoint, unexpected)
    assert ask(client, bound, b"hello", dest_callback=Callback.ECHO)[1] == b"hello"


def test_a_one_way_message_arrives_once_and_is_acknowledged(make, endpoint, until):
    taken = []
    server, client = make(), make()
    client.send(server.listen(endpoint, lambda request: taken.append(request.contents)), b"news")
    until(lambda: taken == [b"news"] and client.pending == 0 and client.counters.acknowledged == 1)


def test_two_endpoints_of_one_messenger_have_their_own_loops(make):
    server, client = make(), make()
    one = server.listen("inproc://one", lambda request: request.reply(b"one"))
    two = server.listen("inproc://two", lambda request: request.reply(b"two"))
    assert [ask(client, name, b"")[1] for name in (one, two)] == [b"one", b"two"]


def test_the_server_side_can_send_requests_to_its_peers_too(make):
    server, client, requests = make(), make(), []
    peer = client.connect(server.listen("tcp://127.0.0.1:0", requests.append), echo)
    client.send(peer, b"here I am")
    assert server.wait(lambda: bool(requests), soon())
    assert ask(server, requests[0].peer, b"and you?")[1] == b"and you?"


def test_an_answer_may_come_later_and_from_another_thread(make):
    server, client = make(), make()
    bound = server.listen(
        "tcp://127.0.0.1:0", lambda request: threading.Thread(target=request.reply, args=[b"x"]).start()
    )
    assert ask(client, bound, b"")[1] == b"x"


def test_send_works_from_many_threads_at_once(make, endpoint, until):
    server, client, answers = make(), make(), []
    peer = client.connect(server.listen(endpoint, echo))

    def send(thread: int) -> None:
        for number in range(200):
            client.send(peer, b"%d" % (thread * 200 + number), lambda _, contents, __: answers.append(int(contents)))

    threads = [threading.Thread(target=send, args=[thread]) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    until(lambda: len(answers) >= 1600, 30)
    assert sorted(answers) == list(range(1600))


def test_many_callers_wait_at_once_and_each_gets_its_own_answer(make, endpoint):
    server, client, failures = make(), make(), []
    peer = client.connect(server.listen(endpoint, echo, idempotent=True))

    def call(thread: int) -> None:
        for number in range(100):
            contents = b"%d.%d" % (thread, number)
            if ask(client, peer, contents, retry=False)[1] != contents:
                failures.append(contents)

    threads = [threading.Thread(target=call, args=[thread]) for thread in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []


def test_a_long_waiting_caller_does_not_delay_others(make):
    server, client = make(), make()
    bound = server.listen("tcp://127.0.0.1:0", echo, idempotent=True)
    peer = client.connect(bound)
    release = threading.Event()
    thread = threading.Thread(target=client.wait, args=[release.is_set, soon(60)])
    thread.start()
    for number in range(50):
        assert ask(client, peer, b"%d" % number, retry=False)[1] == b"%d" % number
    release.set()
    client.wake()
    client.close()
    thread.join(10)
    assert not thread.is_alive()


def test_a_message_after_the_last_call_is_handled_without_a_caller(make, until):
    server, client, answers = make(), make(), []
    peer = client.connect(server.listen("tcp://127.0.0.1:0", echo, idempotent=True))
    ask(client, peer, b"first")
    client.send(peer, b"second", lambda *_: answers.append(1), retry=False)
    until(lambda: answers)


def test_wait_returns_at_its_deadline(make):
    client = make()
    client.connect("inproc://nobody")
    begun = time.monotonic()
    assert not client.wait(lambda: False, begun + 0.05)
    assert 0.05 <= time.monotonic() - begun < 5


def test_wait_returns_at_once_if_its_condition_holds(make):
    assert make().wait(lambda: True, 0.0)


def test_wait_with_a_past_deadline_takes_the_waiting_messages(make):
    server, client, answers = make(), make(grace_seconds=3600), []
    peer = client.connect(server.listen("tcp://127.0.0.1:0", echo))
    client.send(peer, b"", lambda *_: answers.append(1))
    end = soon()
    while not client.wait(lambda: bool(answers), 0.0):
        assert time.monotonic() < end


@pytest.mark.parametrize("contents", ["text", 7, None, ["text"], [b"a", 7], bytearray(b"a")])
def test_contents_other_than_bytes_are_refused_in_the_call(make, contents):
    server, client = make(), make()
    bound = server.listen("inproc://here", echo)
    with pytest.raises((CallerError, TypeError)):
        client.send(bound, contents)
    assert ask(client, bound, [])[1] == b""


def test_wait_inside_a_callback_is_refused(make, caplog):
    server, client, caught = make(), make(), []

    def callback(*_) -> None:
        try:
            client.wait(lambda: False, soon())
        except CallerError as error:
            caught.append(str(error))

    client.send(server.listen("inproc://here", echo), b"", callback)
    assert client.wait(lambda: bool(caught), soon())
    assert "callback" in caught[0]


def test_a_callback_may_send(make):
    server, client, answers = make(), make(), []
    peer = client.connect(server.listen("tcp://127.0.0.1:0", echo))

    def again(_, contents, __) -> None:
        answers.append(contents)
        if len(answers) < 5:
            client.send(peer, contents + b"x", again)

    client.send(peer, b"", again)
    assert client.wait(lambda: len(answers) == 5, soon())
    assert answers[-1] == b"xxxx"


def test_a_callback_that_raises_is_logged_and_counted_and_the_rest_goes_on(make, caplog, until):
    def broken(request) -> None:
        if request.contents == b"bad":
            raise ValueError("a bug of the application")
        request.reply(b"good")

    server, client = make(), make()
    bound = server.listen("tcp://127.0.0.1:0", broken)
    with caplog.at_level(logging.ERROR, "pubsub.messenger"):
        client.send(bound, b"bad")
        assert ask(client, bound, b"")[1] == b"good"
        until(lambda: server.counters.callback_errors == 1)
    assert "a bug of the application" in caplog.text


def test_a_forgotten_callback_is_not_called(make, until):
    server, client, called = make(), make(), []
    held = []
    peer = client.connect(server.listen("tcp://127.0.0.1:0", held.append))
    client.forget(client.send(peer, b"a", called.append, retry=False))
    token = client.send(peer, b"b", lambda *_: called.append("b"), retry=False)
    until(lambda: held)
    client.forget(token)
    held[-1].reply(b"late")
    until(lambda: client.counters.unknown_callbacks)
    assert called == []


def test_foreign_bytes_are_counted_and_do_no_harm(make, context, until):
    server, client = make(), make()
    bound = server.listen("tcp://127.0.0.1:0", echo)
    stranger = context.socket(zmq.DEALER)
    stranger.connect(bound)
    for frames in ([b""], [b"hello"], [b"", b""], [b"x"] * 30, [b"9" * 5000], [b"1-2-"]):
        stranger.send_multipart(frames)
    until(lambda: server.counters.undecodable == 6)
    assert ask(client, bound, b"fine")[1] == b"fine"
    stranger.close(0)


# Limits


@contextlib.contextmanager
def undriven(client, until):
    """What is queued meanwhile is moved at the end, and by this thread."""
    turn = client._loop.turn
    until(turn.try_take)
    try:
        yield
    finally:
        turn.give_up()
        client._loop.flush_if_free()


def test_a_message_too_large_is_refused_with_the_limit_named(make):
    client = make(message_bytes_max=1000)
    with pytest.raises(TooLarge, match="message_bytes_max = 1,000"):
        client.send("inproc://nobody", [b"head", bytes(1000)])
    assert client.pending == 0


def test_unanswered_messages_have_a_limit_in_number_and_bytes(make):
    client = make(messages_max=10)
    for _ in range(10):
        client.send("inproc://nobody", b"x")
    with pytest.raises(TooLarge, match="messages_max = 10"):
        client.send("inproc://nobody", b"x")
    small = make(bytes_max=5000)
    for _ in range(4):
        small.send("inproc://nobody", bytes(1000))
    with pytest.raises(TooLarge, match="bytes_max = 5,000"):  # Whether those before are queued, or have a prefix now.
        small.send("inproc://nobody", bytes(1001))


def test_a_queued_socket_operation_counts_as_no_message(make, until):
    """A connection is made there, too: on a busy machine that stands in the queue for a while."""
    client = make(messages_max=10, message_bytes_max=1000)
    with undriven(client, until):
        client.connect("inproc://nobody")
        with pytest.raises(TooLarge, match="message_bytes_max"):
            client.send("inproc://nobody", bytes(1001))
        assert client.pending == 0
        for _ in range(10):
            client.send("inproc://nobody", b"x")
        with pytest.raises(TooLarge, match="messages_max = 10"):
            client.send("inproc://nobody", b"x")
    assert client.pending == 10


def test_a_message_that_is_moved_out_of_the_queue_counts_once(make, monkeypatch, until):
    client = make(messages_max=3, bytes_max=3000)
    peer, send = client.connect("inproc://nobody"), client._core.send
    told, threads = [], []

    def counted(*arguments, **named) -> None:
        def other() -> None:
            told.append(client.pending)
            with pytest.raises(TooLarge, match="messages_max"):
                client.send(peer, b"x")

        thread = threading.Thread(target=other)
        thread.start()  # It waits for what is being moved, and finds it pending.
        send(*arguments, **named)
        threads.append(thread)

    with undriven(client, until):
        for _ in range(3):
            client.send(peer, bytes(500))
        monkeypatch.setattr(client._core, "send", counted)
    for thread in threads:
        thread.join(10)
    assert told == [3, 3, 3]


def test_callbacks_have_a_limit(make):
    client = make(callbacks_max=3)
    for _ in range(3):
        client.send("inproc://nobody", b"x", print, retry=False)
    with pytest.raises(TooLarge, match="callbacks_max = 3"):
        client.send("inproc://nobody", b"x", print, retry=False)


# Timers


class Alarm:
    """Rings once at a time."""

    def __init__(self, at: float | None) -> None:
        self.at, self.rung = at, []

    def deadline(self) -> float | None:
        return self.at

    def tick(self, now: float) -> None:
        self.at = None
        self.rung.append(now)


@pytest.mark.parametrize("caller_drives", [False, True])
def test_the_ticker_is_called_at_its_time_by_any_driver(make, until, caller_drives):
    client = make()
    client.connect("inproc://nobody")
    due = time.monotonic() + 0.05
    client.ticker = alarm = Alarm(due)
    client.wake()
    if caller_drives:
        assert client.wait(lambda: bool(alarm.rung), soon())
    else:
        until(lambda: alarm.rung)
    assert len(alarm.rung) == 1
    assert alarm.rung[0] >= due


def test_an_earlier_ticker_time_counts_after_a_wake(make, until):
    client = make()
    client.connect("inproc://nobody")
    client.ticker = alarm = Alarm(None)
    alarm.at = time.monotonic() + 0.01
    client.wake()
    until(lambda: alarm.rung)


def test_a_ticker_that_raises_is_called_again_but_not_at_once(make, until, caplog):
    class Broken(Alarm):
        def tick(self, now: float) -> None:
            self.rung.append(now)
            raise ValueError("a bug of the application")

    client = make()
    client.connect("inproc://nobody")
    client.ticker = alarm = Broken(0.0)
    until(lambda: len(alarm.rung) >= 3)
    assert alarm.rung[2] - alarm.rung[0] >= 0.2
    assert client.counters.callback_errors >= 2
