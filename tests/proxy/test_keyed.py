"""A proxy with keys over real sockets: who gets in, what each may do there, and what follows when that changes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from random import Random

import pytest
import zmq

from pubsub.errors import ConfigurationError
from pubsub.messenger.curve import CurveClient
from pubsub.messenger.memory import MemoryGuard
from pubsub.messenger.sockets import allow_connections
from pubsub.protocol import (
    Heartbeat,
    Message,
    Operate,
    Outcome,
    Put,
    Report,
    Status,
    Subscribe,
    Unsubscribe,
    Whole,
    encode,
)
from pubsub.security.authorized import parse
from pubsub.security.files import make_key_file
from pubsub.security.opening import InMemory, ProcessKeys
from tests.proxy.locked import USUAL, Locked, denied, line, locked, pair, write
from tests.proxy.peers import Peer, Running, ServerPeer, get, periodic, running, wait_until
from tests.proxy.stage import log_id
from tests.proxy.test_hostile import MEMBERS

ADDRESSES = pytest.mark.parametrize("addresses", [{}, {"servers": None}], ids=["two ports", "one port"])
SERVES = Status("s1", Outcome.SUCCESS, message=(log_id("x"), 1), records=1, body=b"secret")


def put(topic: str = "t", sender: str = "ann") -> Put:
    return Put(sender, topic, 1, "0" * 16, 1, 0, 0, body=b"x")


def raw(client: Peer, *frames: bytes) -> None:
    client.socket.send_multipart(frames)


def serves(proxy: Locked, server: ServerPeer, client: Peer, sender: str = "ann") -> bool:
    """Whether a client is served: its GET reaches the server, and the answer comes back."""
    client.send(get("t", sender))
    server.send(SERVES, origin=server.request()[0], destination=40, source=0)
    return client.status() == SERVES


def outsider(proxy: Locked, address: str, how: str) -> Peer:
    """Somebody who connects in a way that nobody may."""
    if how in {"stranger", "ann", "s1", "p1"}:
        return proxy.peer(how, address)
    socket = proxy.peers.socket(zmq.DEALER)
    if how == "PLAIN":
        socket.plain_username, socket.plain_password = b"ann", b"ann"
    elif how == "wrong proxy key":
        curve = CurveClient(pair("ann"), (pair("stranger").public,))
        socket.curve_publickey, socket.curve_secretkey = curve.pair.public, curve.pair.secret
        socket.curve_serverkey = curve.expected[0]
    peer = Peer.__new__(Peer)
    peer.socket, peer.id = socket, 0
    socket.connect(address)
    return peer


# Who gets in


@pytest.mark.parametrize(
    ("how", "door", "counter"),
    [
        ("stranger", "bind", "handshakes_refused_key"),
        ("stranger", "servers", "handshakes_refused_key"),
        ("NULL", "bind", "handshakes_failed"),
        ("NULL", "servers", "handshakes_failed"),
        ("PLAIN", "bind", "handshakes_failed"),
        ("wrong proxy key", "bind", "handshakes_failed"),
        ("ann", "servers", "handshakes_refused_role"),
        ("s1", "bind", "handshakes_refused_role"),
        ("p1", "bind", "handshakes_refused_role"),
        ("p1", "servers", "handshakes_refused_role"),
    ],
)
def test_who_may_not_enter_at_a_door_says_nothing_there(tmp_path: Path, how: str, door: str, counter: str) -> None:
    with locked(tmp_path) as proxy:
        intruder = outsider(proxy, getattr(proxy.process, door), how)
        intruder.send(get(), origin=None if door == "bind" else b"")
        intruder.send(periodic({"t": log_id("t")}), origin=b"")
        wait_until(lambda: proxy.count(counter) > 0)
        server, client = proxy.serving("t"), proxy.peer("ann")
        assert serves(proxy, server, client)
        assert not intruder.socket.poll(0)
        counters = proxy.process.core.counters
        assert not any(counters[name] for name in ("malformed", "refused", "answered_unknown", "answers_of_servers"))
        assert len(proxy.process.core.table.servers) == 1
        if counter != "handshakes_failed":
            assert proxy.written("refused")[0]["door"] == {"bind": "clients"}.get(door, door)


def test_a_proxys_key_does_not_enter_where_clients_and_servers_do(tmp_path: Path) -> None:
    with locked(tmp_path, servers=None) as proxy:
        intruder = outsider(proxy, proxy.process.bind, "p1")
        intruder.send(get())
        wait_until(lambda: bool(proxy.written("refused")))
        assert not intruder.socket.poll(0)
        assert proxy.written("refused")[0]["door"] == "both"
        assert proxy.count("handshakes_refused_role") > 0


def test_who_is_authorized_after_a_refusal_gets_in_without_a_restart(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        server = proxy.serving("t")
        refused = proxy.peer("late")
        refused.send(get("t", "late"))
        wait_until(lambda: proxy.count("handshakes_refused_key") == 1)
        proxy.authorize(*USUAL, line("client", "late", "get=t"))
        assert serves(proxy, server, proxy.peer("late"), "late")
        assert proxy.written("line_came")[0]["rights"] == "get=t"
        assert [each["user"].split("#")[0] for each in proxy.written("entered")] == ["server:s1", "client:late"]


# What each may do


@ADDRESSES
def test_who_has_the_right_is_served_as_without_keys(tmp_path: Path, addresses: dict[str, None]) -> None:
    with locked(tmp_path, **addresses) as proxy:
        server, client = proxy.serving("t"), proxy.peer("ann")
        for k in range(3):
            client.send(put())
            origin, _, body = server.request()
            assert origin[:1] == b"c"
            assert client.socket.routing_id not in origin, "who knows it could take the connection's place"
            assert body == b"x"
            answer = Status("s1", Outcome.SUCCESS, last=k, body=b"y" * 200_000 * k)
            server.send(answer, origin=origin, destination=40, source=0)
            assert client.status() == answer
        assert client.ask(get("new-1")).reason == "no_server_holds_this_topic"
        client.send(Subscribe("ann", "new-2", 1, 1, name="shared"))
        assert b"SUBSCRIBE ann new-2" in server.request()[1]
        client.send(Unsubscribe("ann", "new-2", 2, 1, name="shared"))
        wait_until(lambda: len(proxy.written("unsubscribe")) == 1)
        wait_until(lambda: len(proxy.written("topic_made")) == 1)
        (made,), (subscribed,) = proxy.written("topic_made"), proxy.written("subscribe")
        assert (made["topic"], subscribed["topic"], subscribed["subscription"]) == ("new-2", "new-2", "shared")
        assert made["user"] == subscribed["user"]
        assert made["user"].startswith("client:ann#")


def test_an_ipc_address_is_locked_too(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, locked(tmp_path, bind=f"ipc://{folder}/p") as proxy:
        server = proxy.serving("t")
        null = outsider(proxy, proxy.process.bind, "NULL")
        null.send(get())
        wait_until(lambda: proxy.count("handshakes_failed") > 0)
        assert serves(proxy, server, proxy.peer("ann"))
        assert not null.socket.poll(0)


@ADDRESSES
@pytest.mark.parametrize(
    ("message", "why", "sentence"),
    [
        (put("other"), "right", "client ann may not put to other"),
        (put("t", "bob"), "sender", "this key is ann's, not bob's"),
        (get("other"), "right", "client ann may not get from other"),
        (get("t", name="theirs"), "right", "client ann may not use the subscription theirs of t"),
        (get("t", "bob"), "sender", "this key is ann's, not bob's"),
        (Report("ann", "-"), "right", "client ann may not ask for status"),
        (Report("ann", "s1"), "right", "client ann may not ask for status"),
        (Operate("ops", "s1", "drain"), "right", "client ann may not operate"),
        (periodic({"t": log_id("t")}), "right", "client ann may not send this"),
        (Heartbeat("s1", leaving=1), "right", "client ann may not send this"),
    ],
)
def test_who_has_no_right_is_told_so_and_no_server_hears_of_it(
    tmp_path: Path, addresses: dict[str, None], message: Message, why: str, sentence: str
) -> None:
    with locked(tmp_path, **addresses) as proxy:
        server, client = proxy.serving("t", "other"), proxy.peer("ann")
        answer = client.ask(message)
        assert (denied(answer), answer.reason) == (sentence, why)
        client.send(Subscribe("ann", "t", 1, 1))
        assert b"SUBSCRIBE" in server.request()[1]
        assert proxy.count("denied") == 1
        (noted,) = proxy.written("denied")
        assert (noted["user"].split("#")[0], noted["reason"]) == ("client:ann", sentence)


@pytest.mark.parametrize(
    "header",
    [
        b"PUT bob x\r\n\r\n.y 1 publisher=0000000000000000 count=1 previous=0 crc=0 !v=1\r\n\r\n",
        b"PUT bob x 1 publisher=0000000000000000 count=1 previous=0 crc=0 !v=1",
        b"GET bob x.y -1 number=1 opening=1 name=mine name=shared !v=1\r\n\r\n",
    ],
)
def test_a_header_that_proxy_and_server_could_read_differently_goes_to_no_server(tmp_path: Path, header: bytes) -> None:
    with locked(tmp_path) as proxy:
        proxy.authorize(*USUAL[:3], line("client", "bob", "put=*.y,t", "get=*", "names=mine"))
        server, client = proxy.serving("x", "x.y", "t"), proxy.peer("bob")
        raw(client, b"1-40-0-" + header, b"x")
        assert client.status().outcome in {Outcome.REFUSED, Outcome.DENIED}
        assert serves(proxy, server, client, "bob")


@ADDRESSES
def test_a_client_that_speaks_as_a_server_is_a_client(tmp_path: Path, addresses: dict[str, None]) -> None:
    with locked(tmp_path, **addresses) as proxy:
        server, victim, client = proxy.serving("t"), proxy.peer("bob"), proxy.peer("ann")
        victim.send(get("t", "bob"))
        origin = server.request()[0]
        client.send(SERVES, origin=origin, destination=40, source=0)
        client.send(periodic({"t": log_id("z")}, "s2"), origin=b"")
        client.send(Heartbeat("s1", leaving=1), origin=b"")
        raw(client, b"7-0-40-" + encode(SERVES)[0], b"secret")
        assert serves(proxy, server, client)
        assert not victim.socket.poll(0)
        assert [one.id for one in proxy.process.core.table.servers.values()] == ["s1"]
        assert proxy.process.core.counters["answers_of_clients_dropped"] == 1
        assert proxy.count("servers_under_a_wrong_name") == 0, "its key says that it is a client"


def test_who_operates_is_written_down_before_it_is_done(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        server, ops = proxy.serving("t"), proxy.peer("ops")
        assert ops.ask(Operate("pubsub-operator", "-", "forget", store=log_id("none"))).outcome is Outcome.UNKNOWN
        ops.send(Operate("pubsub-operator", "s1", "drain"))
        assert b"OPERATE" in server.request()[1]
        first, second = proxy.written("operate")
        assert (first["action"], first["target"], first["store"]) == ("forget", "-", log_id("none"))
        assert (second["action"], second["target"]) == ("drain", "s1")
        assert second["user"].startswith("client:ops#")


def test_what_cannot_be_written_down_is_not_operated(tmp_path: Path) -> None:
    with locked(tmp_path, audit_file=Path("/dev/full")) as proxy:
        server, ops = proxy.serving("t"), proxy.peer("ops")
        answer = ops.ask(Operate("pubsub-operator", "s1", "drain"))
        assert (answer.outcome, answer.reason) == (Outcome.REFUSED, "the_audit_cannot_be_written")
        assert serves(proxy, server, proxy.peer("ann"))
        assert any("audit file /dev/full" in text for text in proxy.report()["problems"])


# Servers


def test_a_server_speaks_under_its_own_id_only(tmp_path: Path) -> None:
    with locked(tmp_path, heartbeat_seconds=0.5) as proxy:
        server, client, liar = proxy.serving("t"), proxy.peer("ann"), proxy.store("s2")
        for message in (
            periodic({"u": log_id("u")}, "s1"),
            periodic({"u": log_id("u")}, "s3"),
            Heartbeat("s1", leaving=1),
            Whole("s1", {"t": ""}),
        ):
            liar.send(message, origin=b"")
        wait_until(lambda: proxy.count("servers_under_a_wrong_name") == 4)
        assert [one.id for one in proxy.process.core.table.servers.values()] == ["s1"]
        assert serves(proxy, server, client)
        assert liar.announce({"u": log_id("u")}, name="s2").outcome is Outcome.SUCCESS


def test_a_server_that_takes_anothers_link_is_not_taken_for_it(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        server, client = proxy.serving("t"), proxy.peer("ann")
        client.send(get())
        origin = server.request()[0]
        thief = proxy.peers.socket(zmq.DEALER)
        thief.curve_serverkey = pair("p1").public
        thief.curve_publickey, thief.curve_secretkey = pair("s2").public, pair("s2").secret
        thief.routing_id = server.socket.routing_id
        thief.connect(proxy.process.servers)
        header, body = encode(SERVES)
        thief.send_multipart([origin, b"1-0-40-" + header, body])
        thief.send_multipart([b"", b"2-40-0-" + encode(Heartbeat("s1"))[0]])
        wait_until(lambda: proxy.count("servers_under_a_wrong_name") == 2)
        assert not client.socket.poll(0)


def test_a_server_whose_key_was_taken_out_gets_nothing_more(tmp_path: Path) -> None:
    with locked(tmp_path, heartbeat_seconds=30.0) as proxy:
        server, other, client = proxy.serving("t"), proxy.serving("u", name="s2"), proxy.peer("ann")
        client.send(get())
        origin = server.request()[0]
        proxy.authorize(*(one for one in USUAL if " s1 " not in one))
        assert client.ask(put()).reason == "server_s1_is_not_heard"
        server.send(SERVES, origin=origin, destination=40, source=0)
        server.send(periodic({"t": log_id("t")}, change=2), origin=b"")
        wait_until(lambda: proxy.count("servers_under_a_wrong_name") == 2)
        assert not client.socket.poll(0)
        again = proxy.store("s1")
        again.send(periodic({"t": log_id("t")}, incarnation=2, change=2), origin=b"")
        wait_until(lambda: proxy.count("handshakes_refused_key") == 1)
        client.send(get("u"))
        other.send(SERVES, origin=other.request()[0], destination=40, source=0)
        assert client.status() == SERVES
        assert not server.socket.poll(0)


def test_a_server_with_a_second_key_stays_when_the_first_one_is_taken_out(tmp_path: Path) -> None:
    with locked(tmp_path, heartbeat_seconds=30.0) as proxy:
        proxy.authorize(*USUAL, line("server", "s1", key="s1 anew"))
        server, client = proxy.store(key="s1 anew"), proxy.peer("ann")
        assert server.announce({"t": log_id("t")}).outcome is Outcome.SUCCESS
        proxy.authorize(*(one for one in USUAL if " s1 " not in one), line("server", "s1", key="s1 anew"))
        assert serves(proxy, server, client)
        assert not server.socket.poll(0)
        proxy.authorize(*USUAL)
        assert client.ask(get()).reason == "server_s1_is_not_heard"


def test_a_server_that_comes_again_and_again_fills_no_table(tmp_path: Path) -> None:
    with locked(tmp_path, servers_max=2) as proxy:
        for _ in range(10):
            server = proxy.serving("t")
        assert len(proxy.process._server_users) <= 4
        client = proxy.peer("ann")
        assert serves(proxy, server, client)
        proxy.authorize(*(one for one in USUAL if " s1 " not in one))
        assert client.ask(get()).reason == "server_s1_is_not_heard"


# The file changes


@ADDRESSES
def test_answers_to_what_was_asked_before_a_key_was_revoked_go_to_nobody(
    tmp_path: Path, addresses: dict[str, None]
) -> None:
    with locked(tmp_path, **addresses) as proxy:
        server, ann, bob = proxy.serving("t"), proxy.peer("ann"), proxy.peer("bob")
        ann.send(get())
        ann_asked = server.request()[0]
        bob.send(get("t", "bob"))
        bob_asked = server.request()[0]
        proxy.authorize(line("server", "s1"), line("client", "bob", "put=*", "get=*"))
        server.send(SERVES, origin=ann_asked, destination=40, source=0)
        wait_until(lambda: proxy.count("answers_dropped_rights_changed") == 1)
        server.send(SERVES, origin=bob_asked, destination=40, source=0)
        assert bob.status() == SERVES
        assert denied(ann.ask(get())) == "this key is not authorized any more"
        again = proxy.peer("ann")
        again.send(get())
        wait_until(lambda: proxy.count("handshakes_refused_key") == 1)
        assert not again.socket.poll(0)
        assert not ann.socket.poll(0)


def test_a_right_that_was_taken_away_ends_what_was_asked_by_it(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        server, ann = proxy.serving("t"), proxy.peer("ann")
        ann.send(get())
        asked = server.request()[0]
        proxy.authorize(*USUAL[:3], line("client", "ann", "put=t"))
        server.send(SERVES, origin=asked, destination=40, source=0)
        wait_until(lambda: proxy.count("answers_dropped_rights_changed") == 1)
        assert denied(ann.ask(get())) == "client ann may not get from t"
        ann.send(put())
        server.send(SERVES, origin=server.request()[0], destination=40, source=0)
        assert ann.status() == SERVES


def test_who_is_connected_under_an_id_that_its_line_has_no_more_is_told_to_connect_anew(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        server, ann = proxy.serving("t"), proxy.peer("ann")
        assert serves(proxy, server, ann)
        proxy.authorize(*USUAL[:3], line("client", "a*", "get=t", key="ann"))
        assert denied(ann.ask(get())) == "this key is authorized as client a* since it connected: connect anew"
        assert serves(proxy, server, proxy.peer("ann"))


@pytest.mark.parametrize("content", [None, b"", b"client ann nonsense\n", b"half"], ids=str)
def test_a_file_that_cannot_be_used_changes_nothing(tmp_path: Path, content: bytes | None) -> None:
    with locked(tmp_path) as proxy:
        server, ann = proxy.serving("t"), proxy.peer("ann")
        whole = proxy.authorized.read_bytes()
        before = proxy.report()
        if content is None:
            proxy.authorized.unlink()
        else:
            proxy.authorized.write_bytes(whole[:-9] if content == b"half" else content)
        wait_until(lambda: proxy.count("reload_failed") == 1)
        assert serves(proxy, server, ann)
        assert serves(proxy, server, proxy.peer("bob"), "bob")
        wait_until(lambda: any(str(proxy.authorized) in text for text in proxy.report()["problems"]))
        assert proxy.report()["authorized_digest"] == before["authorized_digest"]
        proxy.authorized.write_bytes(whole)
        wait_until(lambda: proxy.count("reloads") >= 1)
        wait_until(lambda: proxy.report()["problems"] == before["problems"] == [])


def test_the_file_is_looked_at_without_being_told(tmp_path: Path) -> None:
    with locked(tmp_path, heartbeat_seconds=30.0) as proxy:
        server = proxy.serving("t")
        write(proxy.authorized, *USUAL, line("client", "late", "get=t"))
        began = time.monotonic()
        wait_until(lambda: proxy.count("reloads") == 1)
        assert time.monotonic() - began < 5.0, "about a second, on a quiet machine"
        assert serves(proxy, server, proxy.peer("late"), "late")


def test_a_reload_every_50_ms_disturbs_nobody_whose_line_is_the_same(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        server, ann = proxy.serving("t"), proxy.peer("ann")
        ann.send(get())
        waits = server.request()[0]
        end, turns, served = time.monotonic() + 2.0, 0, 0
        while time.monotonic() < end:
            write(proxy.authorized, *USUAL, *([line("client", "late", "get=t")] if turns % 2 else []))
            proxy.process.hang_up()
            turns += 1
            until = time.monotonic() + 0.05
            while time.monotonic() < until:
                assert serves(proxy, server, ann)
                served += 1
        wait_until(lambda: proxy.count("reloads") > 10)
        server.send(SERVES, origin=waits, destination=40, source=0)
        assert ann.status() == SERVES, "also what was asked before all of them"
        assert served > turns
        assert proxy.count("denied") == proxy.count("answers_dropped_rights_changed") == 0
        assert proxy.count("handshakes_entered") == 2, "nobody had to come again"


# Many, and much


@ADDRESSES
def test_no_frames_of_those_who_are_let_in_stop_it(tmp_path: Path, addresses: dict[str, None]) -> None:
    draw = Random(11)
    with locked(tmp_path, heartbeat_seconds=30.0, **addresses) as proxy:
        server, ann = proxy.serving("t"), proxy.peer("ann")
        ann.send(get())
        origin = server.request()[0]
        words = [b"", b"c", b"c" + bytes(9), origin, origin[:12], origin + b"x", b"1-40-0-", bytes(300), b"\xff" * 20]
        words += [
            b"1-40-0-" + encode(each)[0] for each in (put(), get(), periodic({}), Heartbeat("s2"), SERVES, *MEMBERS)
        ]
        for _ in range(1_500):
            for peer in (proxy.store("s2"), ann) if draw.random() < 0.01 else (ann, server):
                raw(peer, *draw.choices(words, k=draw.randint(1, 6)))
        bob = proxy.peer("bob")
        bob.send(get("t", "bob", log="0" * 16))
        while b"log=" not in (frames := server.request())[-1]:
            continue
        server.send(SERVES, origin=frames[0], destination=40, source=0)
        assert bob.status() == SERVES
        assert all(row.server in {"s1", "s2"} for row in proxy.process.core.members.registers.rows.values())
        for table in vars(proxy.process._entrance.rights).values() if proxy.process._entrance else ():
            assert not isinstance(table, dict) or len(table) < 50


def test_a_thousand_handshakes_at_once_do_not_stop_those_who_are_in(tmp_path: Path) -> None:
    allow_connections()
    with locked(tmp_path) as proxy:
        server, ann = proxy.serving("t"), proxy.peer("ann")
        context: zmq.Context[bytes] = zmq.Context()
        newcomers = [context.socket(zmq.DEALER) for _ in range(10)]
        for k, socket in enumerate(newcomers):
            own = pair("bob" if k % 2 else "stranger")
            socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = (
                pair("p1").public,
                own.public,
                own.secret,
            )
            for place in range(100):  # A DEALER connects to an address once; from each place it is another one.
                socket.connect(proxy.process.bind.replace("//", f"//127.0.0.{place + 1}:0;"))
        served, longest = 0, 0.0
        deadline = time.monotonic() + 60
        while proxy.count("handshakes_entered") < 502 or proxy.count("handshakes_refused_key") < 500:
            began = time.monotonic()
            assert began < deadline
            assert serves(proxy, server, ann)
            longest = max(longest, time.monotonic() - began)
            served += 1
        context.destroy(0)
        assert served > 10
        assert longest < 5.0
        assert len(proxy.written("refused")) <= 100


def test_when_connections_are_closed_for_their_memory_the_doors_stay_locked(tmp_path: Path) -> None:
    size = [0]
    proxy = Locked(tmp_path, heartbeat_seconds=0.2)
    proxy.process._guard = MemoryGuard(1_000, lambda: size[0])
    proxy.start()
    try:
        server, ann = proxy.serving("t"), proxy.peer("ann")
        assert serves(proxy, server, ann)
        server.socket.close(0)
        before = proxy.process._clients
        size[0] = 2_000
        wait_until(lambda: proxy.process._clients is not before and bool(proxy.process._connections))
        size[0] = 0
        null = outsider(proxy, proxy.process.bind, "NULL")
        null.send(get())
        wait_until(lambda: proxy.count("handshakes_failed") > 0)
        fresh = proxy.store()
        wait_until(lambda: fresh.announce({"t": log_id("t")}, incarnation=2, change=2).outcome is Outcome.SUCCESS)
        assert serves(proxy, fresh, proxy.peer("bob"), "bob")
        assert not null.socket.poll(0)
    finally:
        proxy.stop()


# Other ways to have keys


def test_keys_in_memory_lock_what_leaves_the_process_and_nothing_else(tmp_path: Path) -> None:
    source = InMemory(parse("".join(f"{each}\n" for each in USUAL).encode()))
    servers = "inproc://keyed-servers"
    with running(tmp_path, zmq.Context(), servers=servers, keys=ProcessKeys(pair("p1"), source)) as proxy:
        peers: zmq.Context[bytes] = zmq.Context()
        server = proxy.server()
        assert server.announce({"t": log_id("t")}).outcome is Outcome.SUCCESS
        ann = Peer(peers, proxy.process.bind, curve=CurveClient(pair("ann"), (pair("p1").public,)))
        ann.send(get())
        server.send(SERVES, origin=server.request()[0], destination=40, source=0)
        assert ann.status() == SERVES
        assert denied(ann.ask(put("other"))) == "client ann may not put to other"
        source.authorized = parse(b"#\n")
        proxy.process.hang_up()
        wait_until(lambda: ann.ask(get("other")).reason == "key")
        peers.destroy(0)


def test_two_keyed_processes_cannot_share_a_context_and_say_so(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        settings = {"directory": tmp_path / "two", "authorized": proxy.authorized}
        make_key_file(tmp_path / "two" / "key", pair("p2").secret)
        with pytest.raises(ConfigurationError, match="another context"):
            Running(settings.pop("directory"), proxy.context, **settings).start()
        assert serves(proxy, proxy.serving("t"), proxy.peer("ann"))


@ADDRESSES
def test_the_report_says_what_the_file_means_and_how_often_what_happened(
    tmp_path: Path, addresses: dict[str, None]
) -> None:
    with locked(tmp_path, **addresses) as proxy:
        report = proxy.report()
        assert report["authorized_lines"] == len(USUAL)
        assert report["authorized_digest"] == parse("".join(f"{each}\n" for each in USUAL).encode()).digest
        assert report["counters"]["handshakes_entered"] == 1
        assert report["counters"]["servers_under_a_wrong_name"] == 0
        assert (report["problems"], report["insecure"]) == ([], "")
