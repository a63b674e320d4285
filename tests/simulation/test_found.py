"""Faults that the simulation found, each as a test that names the fault; docs/reference/history-of-faults.md: seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import apsw
import pytest

from pubsub.client.core.changes import Intended
from pubsub.client.core.message import Message
from pubsub.client.flows.flow import Flow
from pubsub.client.storage.store import Store as ClientStore
from pubsub.errors import NotSubscribed, StorageError
from pubsub.protocol import Operate, Run
from pubsub.protocol.batch import encode_batch
from pubsub.protocol.messages import Outcome, Publish, Stage, Status
from pubsub.protocol.transfers import Transfer
from pubsub.server.moves.giving import Giving
from pubsub.server.storage.store import Store as ServerStore
from pubsub.server.topic import changes as c
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic
from tests.server.topics import at_the_end
from tests.simulation.applications.application import Application
from tests.simulation.clients import Call, ClientNode
from tests.simulation.damage import flip
from tests.simulation.disk import NAME, Disk, File, Handle, disks, untidy
from tests.simulation.fate import Fate
from tests.simulation.history import History, Reading
from tests.simulation.nodes import ServerNode
from tests.simulation.simulation import Simulation, simulate
from tests.simulation.tasks import Sink, Then
from tests.simulation.world import World


@pytest.fixture
def disk() -> Iterator[Disk]:
    """The disk of a host named c1."""
    disks().disks = {"c1": Disk()}
    with untidy():
        yield disks().disks["c1"]


class _KeepsAll(Random):
    """A power cut after which all that was written is there, in spite of a sync that failed."""

    def choice(self, seq):  # type: ignore[no-untyped-def]
        return seq[-1]

    def random(self) -> float:
        return 0.5


def test_a_failed_commit_does_not_return_after_the_disk_worked_again(disk: Disk) -> None:
    store = ClientStore(Path("/c1/c1.db"), "1", vfs=NAME)
    store.commit([Intended("t", True)])
    accesses = 0
    while True:  # The last access of a commit is its sync: everything is written by then.
        disk.fail_in = accesses
        try:
            store.commit([Intended("t", False)])
        except StorageError:
            accesses += 1
            continue
        break
    disk.fail_in = None
    store.commit([Intended("t", True)])
    disk.fail_in = accesses - 1
    with pytest.raises(StorageError):
        store.commit([Intended("t", False)])
    assert store.failed
    store.sync()
    assert not store.failed
    disk.cut_power(_KeepsAll())
    again = ClientStore(Path("/c1/c1.db"), "2", vfs=NAME)
    assert [wanted for _, wanted, *_ in again.subscriptions()] == [True]


class Gifts:
    """The giving side of server s2, with one topic that it is to give to s1."""

    def __init__(self, *, frozen: bool) -> None:
        self.thawed: list[str] = []
        self.giving = Giving(
            "s2",
            Random(1),
            freeze=lambda topic, address: None,
            thaw=self.thawed.append,
            chunks=lambda topic, form: iter(()),
            given=lambda topic, server, address: None,
        )
        self.giving.offer("t", "0" * 16, "tcp://s1:3", 0.0, frozen=frozen)

    def refuse(self, server: str) -> None:
        transfer = self.giving.gifts["t"].transfer
        self.giving.refused("t", transfer, Status("s1", Outcome.MOVED, reason="tcp://s2:3", server=server), 0.1)


def test_an_offer_to_a_server_that_froze_the_topic_for_the_offerer_is_withdrawn() -> None:
    gifts = Gifts(frozen=False)
    gifts.refuse("s2")
    assert not gifts.giving.gifts
    assert not gifts.thawed


def test_the_higher_of_two_servers_that_froze_for_each_other_keeps_offering() -> None:
    gifts = Gifts(frozen=True)
    gifts.refuse("s2")
    assert "t" in gifts.giving.gifts


def test_a_commit_counts_as_done_if_only_moving_the_log_fails(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub.client.storage.store.CHECKPOINT_PAGES", 1)
    store = ClientStore(Path("/c1/c1.db"), "1", vfs=NAME)
    file = disk.files["/c1/c1.db"]
    monkeypatch.setattr(Handle, "xWrite", _fails_on(file, Handle.xWrite))
    store.commit([Intended("t", True)])
    assert [wanted for _, wanted, *_ in store.subscriptions()] == [True]
    disk.end_process()
    monkeypatch.undo()
    again = ClientStore(Path("/c1/c1.db"), "1", vfs=NAME)
    assert [wanted for _, wanted, *_ in again.subscriptions()] == [True]


def _fails_on(file: File, write: Callable[[Handle, bytes, int], None]) -> Callable[[Handle, bytes, int], None]:
    def fail(self: Handle, data: bytes, offset: int) -> None:
        if self.file is file:
            raise apsw.FullError("full")
        write(self, data, offset)

    return fail


def test_a_receiver_that_lost_its_chunks_is_offered_the_topic_anew() -> None:
    giving = Giving(
        "s2",
        Random(1),
        freeze=lambda topic, address: None,
        thaw=lambda topic: None,
        chunks=lambda topic, form: iter([b"one\n", b"two\n"]),
        given=lambda topic, server, address: None,
    )
    giving.offer("t", "0" * 16, "tcp://s1:3", 0.0)
    transfer = giving.gifts["t"].transfer
    giving.answered(Transfer("s1", "t", "accepted", transfer), 0.1)
    giving.pump(0.1)
    giving.answered(Transfer("s1", "t", "chunk", transfer, 1), 0.2)
    giving.answered(Transfer("s1", "t", "chunk", transfer, 0), 0.3)
    giving.out.clear()
    giving.tick(giving.deadline())
    ((_, message),) = giving.out
    assert message.step == "offer"
    assert message.transfer != transfer


def test_a_subscribe_below_the_highest_opening_gets_that_opening_in_the_answer() -> None:
    log = Log(1, "0" * 16)
    topic = Topic(1, "t", log, {log.id: log})
    topic.subscribe("c1", 5, 5, True, at_the_end(topic))
    topic.begin_epoch("c1", 30)  # a later opening, of a directory that was emptied since, asked for messages
    outcome, subscription, changed = topic.subscribe("c1", 11, 10, True, at_the_end(topic))
    assert (outcome, subscription.epoch, changed) == (Outcome.SUPERSEDED, 30, False)
    assert topic.subscribe("c1", 31, 31, True, at_the_end(topic))[0] is Outcome.SUCCESS


class _AnsweredDuplicate(Sink):
    """Writes one batch, of which the first rows are kept by a server and all others are published at another one."""

    def __init__(self, seed: int) -> None:
        world = World(seed, Fate(), Random(seed))
        super().__init__(world, world.host("k1", 0.0), ("p1",), History(0.1), "t")
        self.asked: list[Any] = []

    def ask(self, request: Any, then: Then) -> None:
        self.asked.append(request)
        if isinstance(request, Stage):
            then(Status("s1", Outcome.DUPLICATE if len(self.asked) > 1 else Outcome.SUCCESS))

    def soon(self, seconds: float, action: Callable[[], None]) -> None:
        action()


def test_a_sink_with_a_published_batch_still_names_all_its_rows() -> None:
    """The publisher may be another server, which would take the named stages for the complete batch."""
    stages = set()
    for seed in range(30):
        sink = _AnsweredDuplicate(seed)
        sink.go()
        publish = sink.asked[-1]
        assert isinstance(publish, Publish)
        assert publish.stages is not None
        assert sum(publish.stages.values()) == len(sink.rows)
        stages.add((len(publish.stages), len(sink.rows)))
    assert {(1, 8), (2, 8)} <= stages


class _AnsweredGap(Sink):
    """Writes a batch; the server with the beginning of its first stage has lost it."""

    def __init__(self, seed: int) -> None:
        world = World(seed, Fate(), Random(seed))
        super().__init__(world, world.host("k1", 0.0), ("p1",), History(0.1), "t")
        self.asked: list[Any] = []
        self.held: dict[str, int] = {}

    def ask(self, request: Any, then: Then) -> None:
        self.asked.append(request)
        if not isinstance(request, Stage):
            return
        if request.first and len(self.held) == 1:
            self.held[request.attempt] = 0
        if request.first == self.held.setdefault(request.attempt, 0):
            self.held[request.attempt] += request.count
        then(Status("s1", Outcome.SUCCESS if self.held[request.attempt] else Outcome.GAP))

    def soon(self, seconds: float, action: Callable[[], None]) -> None:
        action()


def test_a_sink_whose_stage_is_gone_writes_its_batch_anew_under_other_names() -> None:
    """Otherwise it would ask for the rest of that stage permanently."""
    lost = 0
    for seed in range(30):
        sink = _AnsweredGap(seed)
        sink.go()
        publish = sink.asked[-1]
        assert isinstance(publish, Publish)
        assert publish.stages is not None
        assert publish.stages == {name: rows for name, rows in sink.held.items() if name in publish.stages}
        assert sum(publish.stages.values()) == len(sink.rows)
        gone = [name for name, rows in sink.held.items() if not rows]
        assert not publish.stages.keys() & set(gone)
        lost += len(gone)
    assert lost


class _Answering(ClientNode):
    """A client whose calls end at a time and with a result that the test sets."""

    def __init__(self, world: World) -> None:
        super().__init__(world, world.host("c1", 0.0), ("p1",), power_safe=False)
        self.told: list[Callable[[Any, Exception | None], None]] = []

    def call(
        self,
        flow: Flow[Any],
        then: Callable[[Any, Exception | None], None],
        begun: Callable[[Call], None] = lambda call: None,
    ) -> None:
        flow.close()
        self.told.append(then)


class _Reader:
    """An application that is subscribed to one topic, of which two threads take; everything is well from here on."""

    def __init__(self) -> None:
        world = World(1, Fate(), Random(1))
        self.node = _Answering(world)
        disks().disks["c1"] = self.node.host.disk
        self.history = History(0.1)
        self.application = Application(world, self.node, self.history, lambda: ["t"])
        self.application.program.habits.beside = []
        with untidy():  # Its connection goes when it is collected, and must take no file of a later c1 with it.
            self.node.start()
        self.reading = self.history.reading("c1", "t", by_get=True)
        self.reading.asked = self.reading.confirmed = 0.0
        self.reading.wanted = True
        self.application.finish()
        self.application.subscriber.readers.add("t")
        self.application.publisher.flushed = True

    def leave(self) -> None:
        self.application.subscriber.intend("t", self.reading, on=False)
        self.node.told.pop()(None, None)

    def other_thread_ends(self, taken: int, error: Exception | None) -> None:
        self.application.subscriber.received("t", self.reading, lambda: None, taken, error)


@pytest.mark.parametrize(
    ("taken", "error"), [(1, None), (0, NotSubscribed("c1", "t"))], ids=["iteration", "not subscribed"]
)
def test_a_reader_that_left_is_not_waited_for_when_another_thread_ends_later(
    taken: int, error: Exception | None
) -> None:
    """An iteration that was stopped by the leave found that out after the answer to it; nothing takes there again."""
    reader = _Reader()
    reader.leave()
    reader.other_thread_ends(taken, error)
    assert reader.application.settled() == ""
    assert reader.history.violations == []


def test_a_subscribed_reader_is_waited_for_until_no_message_comes() -> None:
    reader = _Reader()
    reader.other_thread_ends(0, None)
    assert reader.application.settled() == ""
    reader.other_thread_ends(1, None)
    assert reader.application.settled() == "c1 has not drained t"


def test_a_message_after_the_leave_is_a_violation() -> None:
    reader = _Reader()
    message = Message("t", b"late", Run("0" * 16, 1, "c2", 1, 0, 0, [4]), 0)
    reader.application.taking.got(reader.reading, message)
    assert reader.history.violations == []
    reader.leave()
    reader.application.taking.got(reader.reading, message)
    assert reader.history.violations == ["c1 got late of t, which it was told that it has left"]


def test_a_new_subscription_counts_as_opened_until_the_answer_arrives() -> None:
    """The number above a later opening is taken before the answer comes, and is above it for every topic."""
    reader = _Reader()
    world = reader.application.program.world
    reader.application.subscriber.intend("t", reader.reading, on=True)
    world.now = 3.0
    assert reader.application.subscriber.epoch.since == 3.0
    reader.node.told.pop()(None, None)
    world.now = 4.0
    assert reader.application.subscriber.epoch.since == 3.0


def _damaged(bodies: dict[str, bytes]) -> set[str]:
    """The topics of which the batch does not read as it was written."""
    store = ServerStore(Path("/s1"), vfs=NAME)
    try:
        rows = list(store.db.execute("select key >> 40, body from batch"))
    finally:
        store.close()
    return {topic for number, topic in enumerate(bodies, 1) if (number, encode_batch([bodies[topic]])) not in rows}


def test_flipped_bits_are_those_of_the_batch_that_is_named() -> None:
    """A batch that reads as another one since a bit of it flipped must not be taken for that one."""
    bodies = {"t1": b"c3:13", "t2": b"c3:12"}  # One bit apart.
    for seed in range(10):
        world = World(seed, Fate(), Random(seed))
        node = ServerNode(world, world.host("s1", 0.0), ("p1",))
        disks().disks["s1"] = node.host.disk
        store = ServerStore(Path("/s1"), vfs=NAME)
        changes: list[c.Change] = [c.PublisherSeen(1, "c3/" + "0" * 16)]
        for number, (topic, body) in enumerate(bodies.items(), 1):
            log, batch = f"{number:016}", encode_batch([body])
            changes += [
                c.LogOpened(number, log, number),
                c.TopicChanged(number, topic, number, (Span(log, 1),), ""),
                c.BatchAppended(number, 1, 1, 1, number, 1000, crc32(batch), 0, batch),
            ]
        with store.guarded():
            store.apply(changes)
        store.close()
        named: set[str] = set()
        for _ in range(3):
            found = flip(node, Random(seed + len(named)))
            if found is not None:
                named.add(found[0])
            assert _damaged(bodies) == named
        assert named


@pytest.mark.parametrize("arrives", [2.0, 3.01], ids=["before a server that is paused", "when all is well"])
def test_a_drain_that_a_server_reads_after_the_faults_is_ended_too(arrives: float) -> None:
    """It was on its way when the operators saw to it that every server takes topics; none was begun any more then."""
    simulation = Simulation(1, Fate(servers=1, proxies=1, clients=1, topics=2, seconds=3.0))
    (server,) = simulation.cast.servers
    told = Operate("op", server.name, "drain")
    simulation.world.at(0.3, server.pause, 9.0)
    simulation.world.at(arrives, simulation.faults.operators.through, server, told)
    result = simulation.run()
    assert result.violations == []
    assert sorted(server.core.state.topics) == ["t1", "t2"]


def test_operators_end_the_subscription_of_a_client_that_lost_its_directory() -> None:
    """Its backlog fills the topic, and no process that knows of the backlog is left."""
    simulation = Simulation(4, Fate(servers=1, proxies=1, clients=2, topics=1, seconds=3.0))
    (server,), last = simulation.cast.servers, simulation.cast.applications[-1]

    def stays_away(topic: str, reading: Reading, *, on: bool) -> None:
        intend(topic, reading, on=on and not last.program.finishing)

    intend, last.subscriber.intend = last.subscriber.intend, stays_away  # type: ignore[method-assign]
    simulation.world.at(2.9, simulation.faults.directories.replace, last, None, {})
    result = simulation.run()
    assert result.violations == []
    assert last.subscriber.forgotten == {"t1"}
    assert not server.core.state.topics["t1"].subscriptions[last.name].on


@pytest.mark.parametrize(("since", "losses"), [((), 1), (("b" * 16,), 2)], ids=["one log", "another one merged since"])
def test_readers_learn_of_each_log_that_lost_messages_in_a_restored_store(since: tuple[str, ...], losses: int) -> None:
    """A reader in a log merged since the copy learns of the loss in that log, and of the end of the copy's own."""
    simulation = Simulation(1, Fate(servers=1, proxies=1, clients=1, topics=1, seconds=3.0))
    (server,) = simulation.cast.servers
    own = "a" * 16

    def put_back() -> None:
        server.end("killed")
        files = server.host.disk.copy()
        held = {"t1": frozenset([own])}
        simulation.faults.operators._restore(server, {"t1": frozenset([own, *since])}, files, held, set())
        simulation.supervisor.restart(server)

    simulation.world.at(1.0, put_back)
    simulation.run()
    history = simulation.cast.history
    assert history.losses == {"t1": losses}
    told = [history.tell("reader", "t1", f"{log}.1", 1) for log in (own, *since, "c" * 16)]
    assert told == [True] * losses + [False]


def test_a_holder_that_never_learns_of_other_settings_goes_by_its_own_beyond_the_limit_for_consumed_bytes() -> None:
    assert simulate(7311000112).violations == []


def test_a_dropped_message_that_is_too_old_for_delivery_is_reported_as_no_loss() -> None:
    """`drop` took its body, and `expire` was set before its subscriber came."""
    assert simulate(7312000144).violations == []


def test_a_seeker_does_not_wait_for_messages_that_are_too_old() -> None:
    assert simulate(7400000139).violations == []
