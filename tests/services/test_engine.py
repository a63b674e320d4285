"""The one shell: it does a core's acts at the sockets, and hands arriving messages to the core."""

from __future__ import annotations

import os
import threading

import pytest
import zmq

from pubsub.base.clock import SystemClock
from pubsub.errors import AfterFork, ConfigurationError, StorageError
from pubsub.services.core.interface import FRAMES_MAX, BaseCore, Dial, HangUp, Noticed, Port, PortKind, Send
from pubsub.services.engine import DRAIN_MAX, Engine
from tests.faults.cluster import until
from tests.services.running import Running, address

ANY = "tcp://127.0.0.1:0"


class Noting(BaseCore):
    """Notes what happens to it."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[tuple[str, bytes, list[bytes]]] = []
        self.unsent: list[tuple[Send, bool]] = []
        self.over: list[str] = []
        self.ticks: list[float] = []
        self.due: float | None = None
        self.open = True
        self.left = False

    def start(self, now: float) -> None:
        self.began = now

    def receive(self, port, peer, frames, now):
        self.received.append((port, peer, list(frames)))

    def timer(self):
        return self.due

    def tick(self, now):
        self.ticks.append(now)
        self.due = None

    def reads(self, port):
        return self.open

    def undelivered(self, send, now, *, gone):
        self.unsent.append((send, gone))

    def ended(self, port, now):
        self.over.append(port)

    def leave(self, now):
        self.left = True

    def do(self, *acts: object) -> None:
        self._sends += acts  # type: ignore[arg-type]


class WrongClock(SystemClock):
    """Says that it is the year 9999."""

    def wall(self) -> float:
        return 253_370_764_800.0


@pytest.fixture
def running():
    with Running() as made:
        yield made


@pytest.fixture
def context():
    with zmq.Context() as made:
        yield made
        made.destroy(0)


def opened(running: Running, *ports: Port, **named: object) -> tuple[Noting, Engine]:
    core = Noting()
    return core, running.engine(Engine(core, ports, **named))


def dealer(context: zmq.Context, at: str) -> zmq.Socket:
    sock = context.socket(zmq.DEALER)
    sock.connect(at)
    return sock


def test_a_message_comes_with_its_peer_and_returns_to_it(running, context):
    core, engine = opened(running, Port("front", ANY))
    sock = dealer(context, engine.addresses["front"])
    sock.send_multipart([b"a", b"", b"b"])
    until(lambda: core.received, "it came")
    port, peer, frames = core.received[0]
    assert (port, frames) == ("front", [b"a", b"", b"b"])
    engine.submit(lambda now: core.do(Send("front", peer, (b"back",))))
    assert sock.recv_multipart() == [b"back"]


def test_a_redialled_port_has_a_new_identity(running, context):
    front, one = opened(running, Port("front", ANY))
    core, engine = opened(running)
    at = one.addresses["front"]
    engine.submit(lambda now: core.do(Dial("up", at), Send("up", b"", (b"1",))))
    until(lambda: len(front.received) == 1, "the first came")
    engine.submit(lambda now: core.do(Dial("up", at), Send("up", b"", (b"2",))))
    until(lambda: len(front.received) == 2, "the second came")
    assert front.received[0][1] != front.received[1][1]
    engine.submit(lambda now: core.do(HangUp("up"), HangUp("up"), Send("up", b"", (b"3",))))
    until(lambda: core.unsent, "nothing is sent where nothing is open")
    assert core.unsent[0][1]


def test_a_missing_peer_is_reported(running, context):
    core, engine = opened(running, Port("front", ANY))
    engine.submit(lambda now: core.do(Send("front", b"nobody", (b"x",))))
    until(lambda: core.unsent, "it is told")
    assert core.unsent == [(Send("front", b"nobody", (b"x",)), True)]


def test_an_ended_connection_is_reported(running):
    at = address()
    core, engine = opened(running)
    with Running() as gone:
        front, _ = opened(gone, Port("front", at))
        engine.submit(lambda now: core.do(Dial("up", at), Send("up", b"", (b"1",))))
        until(lambda: front.received, "it is connected")
    until(lambda: core.over == ["up"], "it is told")


def test_a_gated_port_is_read_only_while_allowed_and_the_others_meanwhile(running, context):
    core, engine = opened(running, Port("shut", ANY, gated=True), Port("open", ANY))
    core.open = False
    for name in ("shut", "open"):
        dealer(context, engine.addresses[name]).send(name.encode())
    until(lambda: core.received, "the open one is read")
    assert [port for port, _, _ in core.received] == ["open"]
    engine.submit(lambda now: setattr(core, "open", True))
    until(lambda: len(core.received) == 2, "the other one too")


def test_more_messages_than_one_turn_takes_all_come_in_order(running, context):
    core, engine = opened(running, Port("front", ANY))
    sock = dealer(context, engine.addresses["front"])
    for number in range(3 * DRAIN_MAX):
        sock.send(b"%d" % number)
    until(lambda: len(core.received) == 3 * DRAIN_MAX, "all came")
    assert [frames[0] for _, _, frames in core.received] == [b"%d" % number for number in range(3 * DRAIN_MAX)]


def test_no_further_message_is_taken_after_the_awaited_event(running, context):
    core, taken = Noting(), []

    def receive(port, peer, frames, now):
        taken.append(frames[0])
        core._events.append(Noticed("one more"))

    core.receive = receive
    engine = Engine(core, [Port("front", ANY)], told=lambda event, now: enough.append(event))
    engine.open()
    sock, enough = dealer(context, engine.addresses["front"]), []
    for number in range(10):
        sock.send(b"%d" % number)
    for number in range(10):
        engine.run(enough)
        assert taken == [b"%d" % n for n in range(number + 1)]
        enough.clear()
    engine.close()


@pytest.mark.parametrize("frames", [[b"x"] * (FRAMES_MAX + 1), [b"x"] * 3000], ids=len)
def test_a_message_of_too_many_frames_is_dropped_completely(running, context, frames):
    core, engine = opened(running, Port("front", ANY))
    sock = dealer(context, engine.addresses["front"])
    sock.send_multipart(frames)
    sock.send_multipart([b"y"] * FRAMES_MAX)
    until(lambda: core.received, "the next one came")
    assert core.received[0][2] == [b"y"] * FRAMES_MAX
    assert core.counters["undecodable"] == 1


def test_a_timer_is_served(running):
    core, engine = opened(running)
    engine.submit(lambda now: setattr(core, "due", now + 0.05))
    until(lambda: core.ticks, "it ticks")
    assert core.ticks[0] >= core.began + 0.05


def test_published_messages_reach_subscribers(running):
    talks, one = opened(running, Port("says", ANY, kind=PortKind.PUBLISHER))
    hears, _ = opened(running, Port("hears", one.addresses["says"], kind=PortKind.SUBSCRIBER))

    def heard() -> bool:
        one.submit(lambda now: talks.do(Send("says", b"", (b"3",))))
        return bool(hears.received)

    until(heard, "it is heard")
    assert hears.received[0] == ("hears", b"", [b"3"])


def test_a_server_with_a_name_is_addressed_by_it(running, context):
    core, engine = opened(running, Port("front", ANY, identity=b"me"))
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    router.connect(engine.addresses["front"])

    def sent() -> bool:
        try:
            router.send_multipart([b"me", b"x"])
        except zmq.ZMQError:
            return False
        return True

    until(sent, "it is known by its name")
    until(lambda: core.received, "it came")


def test_durable_changes_are_committed_before_anything_is_sent(running, context):
    order = []
    core = Noting()
    core.receive = lambda port, peer, frames, now: core.do(Send(port, peer, (b"ok",)))
    engine = running.engine(Engine(core, [Port("front", ANY)], commit=lambda: order.append(list(core._sends))))
    sock = dealer(context, engine.addresses["front"])
    sock.send(b"x")
    assert sock.recv() == b"ok"
    assert any(sends for sends in order), "what was to be sent was still there at a commit"


def test_a_failed_commit_ends_the_engine_with_nothing_sent(context):
    def commit() -> None:
        if core._sends:
            raise StorageError("/disk", "full")

    core = Noting()
    core.receive = lambda port, peer, frames, now: core.do(Send(port, peer, (b"ok",)))
    engine = Engine(core, [Port("front", ANY)], commit=commit)
    engine.open()
    sock = dealer(context, engine.addresses["front"])
    sock.send(b"x")
    with pytest.raises(StorageError):
        engine.run()
    engine.close()
    assert sock.poll(100) == 0


def test_a_notice_is_logged_if_no_callback_takes_it(running, caplog):
    core, engine = opened(running)
    engine.submit(lambda now: core._events.extend([Noticed("a worker came"), Noticed("it went", warning=True)]))
    until(lambda: "it went" in caplog.text, "it is logged")


def test_an_address_in_use_leaves_nothing_open(running):
    _, engine = opened(running, Port("front", ANY))
    another = Engine(Noting(), [Port("a", ANY), Port("b", engine.addresses["front"])])
    with pytest.raises(ConfigurationError, match="in use"):
        another.open()
    assert another.ended
    another.close()


def test_nothing_is_bound_or_begun_while_the_clock_is_wrong(context):
    at = address()
    core, clock = Noting(), WrongClock()
    engine = Engine(core, [Port("front", at)], context=context, clock=clock)
    with pytest.raises(ConfigurationError, match="clock"):
        engine.open()
    assert engine.ended
    assert (engine.addresses, hasattr(core, "began")) == ({}, False)
    context.socket(zmq.ROUTER).bind(at)


def test_a_forked_child_may_not_use_the_engine(running):
    _, engine = opened(running, Port("front", ANY))
    child = os.fork()
    if not child:
        try:
            engine.close()
            engine.submit(print)
        except AfterFork:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert not engine.inherited


def test_an_engine_says_good_bye_at_its_end(running):
    core = Noting()
    engine = Engine(core)
    engine.open()
    thread = threading.Thread(target=engine.run)
    thread.start()
    engine.stop()
    thread.join()
    engine.leave()
    engine.close()
    assert core.left
