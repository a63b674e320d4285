"""A refused peer learns the reason, is not forgotten, and retries rarely: every case with real sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import zmq

from pubsub.errors import CallerError
from pubsub.messenger import CurveClient, CurveServer, Messenger, MessengerLimits, Refusal, redials, sockets
from pubsub.messenger import redial as redialing
from pubsub.messenger.redial import Redial, open_redialed
from pubsub.security.access import Access
from pubsub.security.authorized import parse
from pubsub.security.keys import format_public
from pubsub.security.pairs import Pair, new_pair

ALICE, BANK, STRANGER, NEXT = new_pair(), new_pair(), new_pair(), new_pair()
RULES = f"client alice {format_public(ALICE.public)} put=*\n"
KEYS = CurveClient(ALICE, (BANK.public,))


class Bank:
    """A Messenger that answers; with a key, or without one."""

    def __init__(self, pair: Pair | None = BANK, endpoint: str = "tcp://127.0.0.1:0") -> None:
        self.access = Access(parse(RULES.encode()))
        self.messenger = Messenger(zap=self.access.zap)
        curve = None if pair is None else CurveServer(pair, "clients")
        self.endpoint = self.messenger.listen(endpoint, lambda request: request.reply(b"paid"), curve=curve)

    def authorize(self, pair: Pair) -> None:
        self.access.replace(parse(f"{RULES}client bob {format_public(pair.public)}\n".encode()))


class Customer:
    """A Messenger that connects, and what it is told."""

    def __init__(self, endpoint: str, curve: CurveClient | None) -> None:
        self.messenger = Messenger()
        self.told: list[Refusal | None] = []
        self.answers: list[bytes] = []
        self.peer = self.messenger.connect(endpoint, curve=curve, told=self.told.append)

    def ask(self) -> None:
        self.messenger.send(self.peer, b"x", lambda _, contents, __: self.answers.append(bytes(contents)))

    def wait(self, done: Callable[[], bool], seconds: float = 20.0) -> bool:
        return self.messenger.wait(done, time.monotonic() + seconds)


@pytest.fixture
def bank() -> Iterator[Callable[..., Bank]]:
    made: list[Bank] = []

    def make(*given: object, **named: object) -> Bank:
        made.append(Bank(*given, **named))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.messenger.close()


@pytest.fixture
def customer() -> Iterator[Callable[..., Customer]]:
    made: list[Customer] = []

    def make(endpoint: str, curve: CurveClient | None) -> Customer:
        made.append(Customer(endpoint, curve))
        return made[-1]

    yield make
    for one in made:
        one.messenger.close()


@pytest.mark.parametrize(
    ("has", "curve", "refusal"),
    [
        (BANK, CurveClient(STRANGER, (BANK.public,)), Refusal.KEY_UNKNOWN),
        (BANK, CurveClient(ALICE, (STRANGER.public,)), Refusal.KEY_DIFFERS),
        (BANK, CurveClient(ALICE, (STRANGER.public, NEXT.public)), Refusal.KEY_DIFFERS),
        (BANK, None, Refusal.KEY_WANTED),
        (None, KEYS, Refusal.KEY_MISSING),
    ],
    ids=["a key that is not known", "another key", "others than both", "no key", "keys where none is asked for"],
)
def test_a_refused_client_learns_the_reason_at_once(bank, customer, tmp_path, has, curve, refusal):
    for endpoint in ("tcp://127.0.0.1:0", f"ipc://{tmp_path}/bank"):
        one = customer(bank(has, endpoint).endpoint, curve)
        begun = time.monotonic()
        assert one.wait(lambda one=one: bool(one.told))
        assert one.told == [refusal]
        assert time.monotonic() - begun < 2.0  # 1 to 60 ms on an idle machine.
        assert one.messenger.counters.keys_refused == 1


def test_a_client_authorized_after_a_refusal_connects_with_the_same_messenger(bank, customer):
    there = bank()
    bob = customer(there.endpoint, CurveClient(STRANGER, (BANK.public,)))
    bob.ask()
    assert bob.wait(lambda: bool(bob.told))
    there.authorize(STRANGER)
    assert bob.wait(lambda: bool(bob.answers))
    assert bob.told == [Refusal.KEY_UNKNOWN, None]
    assert bob.answers == [b"paid"]


def test_an_authorized_client_can_retry_at_once(bank, customer, monkeypatch):
    monkeypatch.setattr(redialing, "REDIAL_SECONDS", 3_600.0)
    there = bank()
    bob = customer(there.endpoint, CurveClient(STRANGER, (BANK.public,)))
    assert bob.wait(lambda: bool(bob.told))
    there.authorize(STRANGER)
    bob.messenger.hurry(bob.peer)
    assert bob.wait(lambda: None in bob.told)
    bob.messenger.hurry(bob.peer)  # Where nothing is refused it does nothing.
    bob.ask()
    assert bob.wait(lambda: bool(bob.answers))
    assert bob.messenger.counters.redialed == 1


def test_the_right_one_of_several_expected_keys_is_found(bank, customer):
    one = customer(bank().endpoint, CurveClient(ALICE, (STRANGER.public, NEXT.public, BANK.public)))
    one.ask()
    assert one.wait(lambda: bool(one.answers))
    assert one.told == []


def test_a_key_that_is_replaced_is_followed(bank, customer):
    there = bank()
    one = customer(there.endpoint, CurveClient(ALICE, (BANK.public, NEXT.public)))
    for pair in (NEXT, BANK, NEXT):
        there.messenger.close()
        there = bank(pair, there.endpoint)
        one.answers.clear()
        one.ask()
        assert one.wait(lambda: bool(one.answers))
    assert one.told == []


def test_a_refusal_ends_when_the_refusing_server_is_gone(bank, customer, monkeypatch):
    monkeypatch.setattr(redialing, "REDIAL_SECONDS", 0.05)
    there = bank()
    one = customer(there.endpoint, CurveClient(STRANGER, (BANK.public,)))
    assert one.wait(lambda: bool(one.told))
    there.messenger.close()
    assert one.wait(lambda: one.told[-1] is None)


class Balancer:
    """Accepts every connection, and closes it at once: what stands in front of a proxy that is not there."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # It is closed already.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.mark.parametrize("curve", [None, KEYS], ids=["without keys", "with keys"])
def test_a_peer_that_closes_without_an_answer_does_not_count_as_refusing(customer, curve):
    balancer = Balancer()
    try:
        one = customer(balancer.endpoint, curve)
        assert one.wait(lambda: balancer.connections > 12)
        assert one.told == []
    finally:
        balancer.close()


def test_a_peer_too_busy_for_handshakes_does_not_count_as_refusing(customer, monkeypatch):
    asked: list[object] = []
    with Messenger(zap=lambda question: asked.append(question) or []) as busy:  # type: ignore[func-returns-value]
        with monkeypatch.context() as impatient:
            impatient.setattr(sockets, "HANDSHAKE_SECONDS", 0.05)
            endpoint = busy.listen("tcp://127.0.0.1:0", lambda request: None, curve=CurveServer(BANK, "clients"))
        monkeypatch.setattr(redialing, "SLOW_SECONDS", 0.02)
        one = customer(endpoint, KEYS)
        assert one.wait(lambda: len(asked) > 4)
        assert one.told == []


def test_a_peer_back_behind_a_balancer_does_not_count_as_refusing(bank):
    """The handshakes were closed while nobody was behind it, and who was asked then is there again."""
    balancer = Balancer()
    context = zmq.Context()
    sock, redial = open_redialed(context, balancer.endpoint, curve=KEYS)
    try:
        while not redial.asks:
            assert redial.sock.poll(10_000)
            redial.take(100.0)
        connections = balancer.connections
        while balancer.connections < connections + 5:
            time.sleep(0.01)
        balancer.close()
        bank(endpoint=balancer.endpoint)
        redial.asks = False
        news = [redial.asked("CURVE", 100.0)]
        while redial._closed:
            assert redial.sock.poll(10_000)
            news += redial.take(100.0)
            assert not redial.asks
        assert news == [None]
        assert (redial.refused, redial.due) == (None, float("inf"))
    finally:
        balancer.close()
        redial.close()
        sock.close(0)
        context.term()


def test_a_client_accepted_during_the_inquiry_is_not_refused(bank):
    context = zmq.Context()
    sock, redial = open_redialed(context, bank().endpoint, curve=KEYS)
    try:
        redial._closed = 1  # As after a proxy that ended in the midst of a handshake.
        while redial._closed:
            assert redial.sock.poll(10_000)
            redial.take(100.0)
        assert redial.asked("CURVE", 100.0) is None
        assert (redial.refused, redial.due) == (None, float("inf"))
    finally:
        redial.close()
        sock.close(0)
        context.term()


def waits(redial: Redial, count: int) -> list[float]:
    """How long it leaves the other side alone, time after time; the clock stands still meanwhile."""
    found: list[float] = []
    for _ in range(count):
        while redial.refused is None or redial.due == float("inf"):
            assert redial.sock.poll(10_000)
            redial.take(100.0)
            if redial.asks:
                redial.asks, redial._ask_at = False, float("-inf")
                redial.asked("CURVE", 100.0)
            if redial.refused is None and redial.due != float("inf"):
                # ZeroMQ has given it up, which is a matter of how it was closed. Its redial counts for no time here.
                seconds = redial._seconds
                redial.redial()
                redial._seconds = seconds
        found.append(round(redial.due - 100.0, 3))
        redial.redial()
        redial.refused = None
    return found


@pytest.mark.parametrize(
    "curve",
    [CurveClient(STRANGER, (BANK.public,)), CurveClient(ALICE, (STRANGER.public,)), None],
    ids=["a key that is not known", "another key", "no key"],
)
def test_a_refusing_peer_is_asked_less_and_less_often(bank, curve, monkeypatch):
    monkeypatch.setattr(redialing, "REDIAL_SECONDS", 0.01)
    monkeypatch.setattr(redialing, "REDIAL_SECONDS_MAX", 0.04)
    context = zmq.Context()
    sock, redial = open_redialed(context, bank().endpoint, curve=curve)
    try:
        assert waits(redial, 4) == [0.01, 0.02, 0.04, 0.04]
    finally:
        redial.close()
        sock.close(0)
        context.term()


def test_zeromq_does_not_reconnect_to_a_refusing_peer(bank, customer, relay_to, monkeypatch):
    """By itself it would every 50 ms, where the other side has another key."""
    monkeypatch.setattr(redialing, "REDIAL_SECONDS", 3_600.0)
    relay = relay_to(bank().endpoint)
    one = customer(relay.endpoint, CurveClient(ALICE, (STRANGER.public,)))
    assert one.wait(lambda: bool(one.told))
    before = len(relay.pairs)
    assert not one.wait(lambda: len(relay.pairs) > before, 0.4)


def test_a_client_without_a_refusal_callback_connects_after_its_authorization(bank):
    there = bank()
    with Messenger() as bob:
        answers: list[bytes] = []
        peer = bob.connect(there.endpoint, curve=CurveClient(STRANGER, (BANK.public,)))
        bob.send(peer, b"x", lambda _, contents, __: answers.append(bytes(contents)))
        assert bob.wait(lambda: bob.counters.keys_refused > 0, time.monotonic() + 20)
        there.authorize(STRANGER)
        assert bob.wait(lambda: bool(answers), time.monotonic() + 20)


def test_a_refused_client_closes_at_once(bank, customer):
    one = customer(bank().endpoint, CurveClient(STRANGER, (BANK.public,)))
    assert one.wait(lambda: bool(one.told))
    begun = time.monotonic()
    one.messenger.disconnect(one.peer)
    one.messenger.close()
    assert time.monotonic() - begun < 5.0


def test_a_revoked_key_is_refused_at_its_next_connection(bank, customer, relay_to):
    there = bank()
    relay = relay_to(there.endpoint)
    one = customer(relay.endpoint, KEYS)
    one.ask()
    assert one.wait(lambda: bool(one.answers))
    there.access.replace(parse(b"# nobody\n"))
    relay.cut(0)
    relay.cut(1)
    assert one.wait(lambda: bool(one.told))
    assert one.told[0] is Refusal.KEY_UNKNOWN


def test_a_refusal_callback_that_raises_does_no_harm(bank):
    there = bank()
    with Messenger() as bob:

        def told(refusal: Refusal | None) -> None:
            raise ZeroDivisionError(refusal)

        answers: list[bytes] = []
        peer = bob.connect(there.endpoint, curve=CurveClient(STRANGER, (BANK.public,)), told=told)
        assert bob.wait(lambda: bob.counters.callback_errors == 1, time.monotonic() + 20)
        there.authorize(STRANGER)
        bob.hurry(peer)
        bob.send(peer, b"x", lambda _, contents, __: answers.append(bytes(contents)))
        assert bob.wait(lambda: bool(answers), time.monotonic() + 20)


def test_an_inquiry_without_a_thread_is_made_later(bank, customer, monkeypatch):
    """As where a container's limit of processes is reached: why it is refused is then found out another time."""
    there = bank()
    monkeypatch.setattr(redialing, "ASK_SECONDS", 0.1)
    started = []

    def unable(*given: object, **named: object) -> threading.Thread:
        started.append(given)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(redials, "Thread", unable)
        one = customer(there.endpoint, CurveClient(ALICE, (STRANGER.public,)))
        assert one.wait(lambda: len(started) > 1)
    assert one.wait(lambda: bool(one.told))
    assert one.told == [Refusal.KEY_DIFFERS]


def test_a_refusal_callback_on_the_inquiring_thread_may_close(bank, monkeypatch):
    """Where nobody is at the sockets just then, whoever has found out why does what there is to do, and tells."""
    asked, again, found, closed = [], threading.Event(), threading.Event(), threading.Event()

    def mechanism(endpoint: str) -> str:
        asked.append(endpoint)
        if len(asked) > 1:
            again.set()
            found.wait(20)
        return "CURVE"

    def told(refusal: Refusal | None) -> None:
        with pytest.raises(CallerError, match="from a callback"):
            messenger.wait(lambda: True, 0.0)
        messenger.close()
        closed.set()

    monkeypatch.setattr(redials, "mechanism", mechanism)
    messenger = Messenger(limits=MessengerLimits(grace_seconds=30.0))
    messenger.connect(bank().endpoint, curve=CurveClient(ALICE, (STRANGER.public,)), told=told)
    assert messenger.wait(again.is_set, time.monotonic() + 20)
    found.set()
    assert closed.wait(5)
    messenger.close()
