"""Arbitrary and mutated bytes from either side: nothing escapes, nothing grows, others keep their service."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub.messenger.framing import pack
from pubsub.protocol import (
    Get,
    Heartbeat,
    Message,
    Outcome,
    Owners,
    Periodic,
    Put,
    Report,
    Status,
    Subscribe,
    decode,
    encode,
)
from pubsub.protocol.register import Accept, Admit, Forget, Look, Prepare, View, Vote, VoteOutcome
from pubsub.proxy.remembered import RegisterRow, Remembered
from pubsub.proxy.routes_file import _valid_register
from pubsub.proxy.routing_table import HOLDERS_PER_TOPIC
from tests.proxy.stage import Stage, log_id

MESSAGES = (
    Subscribe("ann", "t", 1, 1, log=log_id("x"), avoid=log_id("y")),
    Get("ann", "t", None, 1, 1),
    Put("ann", "new", 1, "0" * 16, 1, 0, 0),
    Report("ann", "-"),
    Periodic("s2", log_id("s2"), 3, 4, "tcp://s2", "p", 5, 0, {"t": log_id("z"), "u": ""}),
    Heartbeat("s1", 7),
    Owners("s1", {"t": ""}),
    Status("s1", Outcome.SUCCESS),
)
NUMBERS = st.sampled_from([b"0", b"1", b"2", b"9223372036854775807", b"9223372036854775808", b"-1", b"1" * 30])


STORE, IDENTITY, A, B = log_id("s1"), "f" * 16, "a" * 16, "b" * 16
VIEW = View(100, A, "tcp://a:1", (A, B), (A, B))
ROW = RegisterRow(STORE, 100, 100, VIEW, "s1")
MEMBERS = (
    Prepare("s1", STORE, B, 200, 7, "takeover"),
    Prepare("s2", log_id("s2"), B, 200, 7, "resume"),
    Accept("s1", STORE, B, 200, 7, View(200, B, "tcp://b:1", (A, B), (B,))),
    Look("s1", STORE, 7),
    Admit("s2", log_id("s2"), 7, IDENTITY, 200, 100, VIEW),
    Vote("p2", STORE, VoteOutcome.REPORTED, 7, IDENTITY, 200, 100, VIEW, 0),
    Forget("s1", STORE, B, IDENTITY),
    Periodic("s1", STORE, 200, 4, "tcp://s1", "p", 5, 0, {"t": log_id("z")}, member=B),
    Periodic("s2", log_id("s2"), 200, 4, "tcp://s2", "p", 5, 0, {"t": log_id("z")}, member=A),
)
"""What members of stores say, to proxies and to each other."""


@st.composite
def mutated(draw: st.DrawFn, messages: tuple[Message, ...] = MESSAGES) -> tuple[bytes, ...]:
    """Frames of a real message of which something was changed."""
    header, body = encode(draw(st.sampled_from(messages)))
    head = pack(1, draw(st.sampled_from([0, 40])), 0) + header
    words = head.split(b" ")
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(words) - 1))
        name, equals, _ = words[place].partition(b"=")
        change = draw(st.sampled_from(["drop", "twice", "number", "bytes", "name"]))
        if change == "drop" and len(words) > 1:
            del words[place]
        elif change == "twice":
            words.insert(place, words[place])
        elif change == "number":
            words[place] = name + equals + draw(NUMBERS)
        elif change == "bytes":
            words[place] = name + equals + draw(st.binary(max_size=20))
        else:
            words[place] = draw(st.sampled_from([b"..", b"s1", b"t", b"!x=1", b"PERIODIC", b"\r\n\r\n"]))
    frames = [b" ".join(words)]
    if len(body) or draw(st.booleans()):
        cut = draw(st.integers(0, len(body)))
        frames.append(bytes(body[:cut]) + draw(st.binary(max_size=5)))
    return tuple(frames)


FRAMES = st.one_of(mutated(), st.lists(st.binary(max_size=40), min_size=1, max_size=4).map(tuple))


@settings(max_examples=4 * settings().max_examples)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from([b"s1", b"new", b""]), FRAMES), max_size=12))
def test_arbitrary_bytes_do_not_stop_a_proxy_or_block_clients(
    messages: list[tuple[bool, bytes, tuple[bytes, ...]]],
) -> None:
    stage = Stage(topics_max=20, servers_max=4)
    stage.announce("s1", {"kept": "x"}, incarnation=5, change=5)
    for from_server, link, frames in messages:
        if from_server:
            stage.core.server_message(link, (b"", *frames), stage.now)
            stage.core.server_message(link, frames, stage.now)
        else:
            stage.core.route(frames[0], stage.now)
            stage.core.client_message(link, frames, stage.now)
        stage.core.tick(stage.now)
        stage.core.replies.take()
    table = stage.core.table
    assert len(table) + len(table.assignments.tentative) <= 20 + len(table.assignments.tentative)
    assert len(table.servers) <= 4
    assert len(stage.core.notices.lines) <= 60
    leaving = any(b"leaving" in frame for _, _, frames in messages for frame in frames)
    if "kept" in table.single and not leaving:
        assert stage.get("kept") == "-> s1"


@settings(max_examples=2 * settings().max_examples)
@given(st.booleans(), st.lists(st.tuples(st.sampled_from([b"s1", b"new", b""]), mutated(MEMBERS)), max_size=12))
def test_arbitrary_messages_of_members_leave_readable_registers(
    keyed: bool, messages: list[tuple[bytes, tuple[bytes, ...]]]
) -> None:
    stage = Stage(remembered=Remembered(registers=[ROW], identity=IDENTITY), servers_max=4)
    stage.core.members.keyed = keyed
    promised = ROW.promised
    for link, frames in messages:
        stage.core.server_message(link, (b"", *frames), stage.now)
        stage.core.client_message(link, frames, stage.now)
        stage.core.tick(stage.now)
        rows = stage.core.members.registers.rows
        assert all(_valid_register(row) for row in rows.values())
        assert rows[STORE].promised >= promised, "no promise is taken back"
        assert rows[STORE].server == "s1"
        promised = rows[STORE].promised
        for said in stage.said():
            assert not isinstance(said.message, Vote) or said.to_server
            assert said.message == decode(*encode(said.message))
    stage.from_server(b"b", b"", Look("s1", STORE, 3))
    (vote,) = [said.message for said in stage.said() if isinstance(said.message, Vote)]
    assert (vote.outcome, vote.promised) == (VoteOutcome.REPORTED, promised)


def test_a_flood_of_questions_about_registers_costs_no_memory() -> None:
    """Of stores that nobody has: each is answered, and none is kept."""
    stage = Stage(remembered=Remembered(registers=[ROW], identity=IDENTITY))
    for k in range(1, 3_000):
        for asked in (Look("s1", f"{k:016x}", k), Prepare("s1", f"{k:016x}", A, k, k, "takeover")):
            stage.from_server(b"%d" % k, b"", asked)
            (said,) = stage.said()
            assert isinstance(said.message, Vote)
            assert said.message.outcome is VoteOutcome.NEW
    registers = stage.core.members.registers
    assert (len(registers.rows), len(registers._last), len(stage.core.table.servers)) == (1, 0, 0)
    assert not stage.core.table.changes
    assert len(stage.core.counters) < 30


def test_a_flood_of_bad_messages_fills_neither_log_nor_counters() -> None:
    stage = Stage()
    for k in range(5_000):
        stage.core.client_message(b"C", (b"%d-40-0-NONSENSE a b c\r\n\r\n" % k,), stage.now)
        stage.core.server_message(b"%d" % k, (b"", b"1-0-0-" + encode(Heartbeat(f"s{k}"))[0]), stage.now)
        stage.said()
        stage.announce(f"s{k}", {}, link=b"%d" % k, partial=1)
    assert len(stage.core.counters) < 30
    assert len(stage.core.notices.lines) <= 60
    assert len(stage.core.table.servers) == 0


def test_a_flood_of_new_topics_stops_at_the_limit() -> None:
    stage = Stage(topics_max=100)
    stage.announce("s1")
    answers = [stage.subscribe(f"t{k}") for k in range(200)]
    assert answers.count("-> s1") == 100
    assert answers[-1] == "full topics_max_is_reached"


def test_equal_announcements_of_many_servers_stay_within_the_limit() -> None:
    stage = Stage(topics_max=50, servers_max=40)
    names = {f"t{k}": "x" for k in range(50)}
    outcomes = [answer.outcome for k in range(40) if (answer := stage.announce(f"s{k}", names)) is not None]
    held = [len(server.topics) for server in stage.core.table.servers.values()]
    assert held == [50] * HOLDERS_PER_TOPIC + [0] * (40 - HOLDERS_PER_TOPIC)
    assert outcomes == [Outcome.SUCCESS] * HOLDERS_PER_TOPIC + [Outcome.FULL] * (40 - HOLDERS_PER_TOPIC)
    stage.announce("s0", {}, change=2)
    stage.announce("s39", names, change=2)
    assert len(stage.core.table.named("s39").topics) == 50
