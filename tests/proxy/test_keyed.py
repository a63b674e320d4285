"""A proxy with keys over real sockets: accepted peers, and the allowed requests of each."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from pubsub.errors import ConfigurationError
from pubsub.messenger.curve import CurveClient
from pubsub.protocol import (
    Heartbeat,
    Message,
    Operate,
    Outcome,
    Owners,
    Report,
    Status,
    Subscribe,
    Unsubscribe,
    encode,
)
from pubsub.security.authorized import parse
from pubsub.security.files import make_key_file
from pubsub.security.process_keys import InMemory, ProcessKeys
from tests.proxy.locked import (
    ADDRESSES,
    SERVES,
    USUAL,
    denied,
    line,
    locked,
    outsider,
    pair,
    put,
    raw,
    serves,
)
from tests.proxy.peers import Peer, Running, get, periodic, running, wait_until
from tests.proxy.stage import log_id

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
def test_messages_of_a_refused_peer_are_not_read(tmp_path: Path, how: str, door: str, counter: str) -> None:
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


def test_a_peer_authorized_after_a_refusal_connects_without_a_restart(tmp_path: Path) -> None:
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
def test_a_client_with_the_right_is_served_as_without_keys(tmp_path: Path, addresses: dict[str, None]) -> None:
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


def test_an_ipc_address_requires_keys_too(tmp_path: Path) -> None:
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
def test_a_client_without_the_right_is_denied_and_no_server_gets_its_request(
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
def test_a_client_that_sends_server_messages_is_treated_as_a_client(tmp_path: Path, addresses: dict[str, None]) -> None:
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


def test_an_operation_is_in_the_audit_before_it_is_done(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        server, ops = proxy.serving("t"), proxy.peer("ops")
        assert ops.ask(Operate("pubsub-operator", "-", "forget", store=log_id("none"))).outcome is Outcome.UNKNOWN
        ops.send(Operate("pubsub-operator", "s1", "drain"))
        assert b"OPERATE" in server.request()[1]
        first, second = proxy.written("operate")
        assert (first["action"], first["target"], first["store"]) == ("forget", "-", log_id("none"))
        assert (second["action"], second["target"]) == ("drain", "s1")
        assert second["user"].startswith("client:ops#")


def test_an_operation_that_cannot_be_audited_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path, audit_file=Path("/dev/full")) as proxy:
        server, ops = proxy.serving("t"), proxy.peer("ops")
        answer = ops.ask(Operate("pubsub-operator", "s1", "drain"))
        assert (answer.outcome, answer.reason) == (Outcome.REFUSED, "the_audit_cannot_be_written")
        assert serves(proxy, server, proxy.peer("ann"))
        assert any("audit file /dev/full" in text for text in proxy.report()["problems"])


# Servers


def test_a_server_can_use_only_its_own_id(tmp_path: Path) -> None:
    with locked(tmp_path, heartbeat_seconds=0.5) as proxy:
        server, client, liar = proxy.serving("t"), proxy.peer("ann"), proxy.store("s2")
        for message in (
            periodic({"u": log_id("u")}, "s1"),
            periodic({"u": log_id("u")}, "s3"),
            Heartbeat("s1", leaving=1),
            Owners("s1", {"t": ""}),
        ):
            liar.send(message, origin=b"")
        wait_until(lambda: proxy.count("servers_under_a_wrong_name") == 4)
        assert [one.id for one in proxy.process.core.table.servers.values()] == ["s1"]
        assert serves(proxy, server, client)
        assert liar.announce({"u": log_id("u")}, name="s2").outcome is Outcome.SUCCESS


def test_a_server_with_the_link_id_of_another_is_not_mistaken_for_it(tmp_path: Path) -> None:
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


def test_a_server_with_a_revoked_key_gets_no_more_messages(tmp_path: Path) -> None:
    with locked(tmp_path, heartbeat_seconds=30.0) as proxy:
        server, other, client = proxy.serving("t"), proxy.serving("u", name="s2"), proxy.peer("ann")
        client.send(get())
        origin = server.request()[0]
        proxy.authorize(*(one for one in USUAL if " s1 " not in one))
        assert client.ask(put()).reason == "server_s1_sends_no_heartbeats"
        server.send(SERVES, origin=origin, destination=40, source=0)
        server.send(periodic({"t": log_id("t")}, change=2), origin=b"")
        wait_until(lambda: proxy.count("servers_under_a_wrong_name") == 2)
        assert not client.socket.poll(0)
        again = proxy.store("s1")
        again.socket.sndtimeo = 0
        with suppress(zmq.Again):  # It may have been refused already; then there is nobody to send to.
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
        assert client.ask(get()).reason == "server_s1_sends_no_heartbeats"


def test_a_server_that_comes_again_and_again_fills_no_table(tmp_path: Path) -> None:
    with locked(tmp_path, servers_max=2) as proxy:
        for _ in range(10):
            server = proxy.serving("t")
        assert len(proxy.process._server_users) <= 4
        client = proxy.peer("ann")
        assert serves(proxy, server, client)
        proxy.authorize(*(one for one in USUAL if " s1 " not in one))
        assert client.ask(get()).reason == "server_s1_sends_no_heartbeats"


# Other ways to have keys


def test_keys_in_memory_apply_only_outside_the_process(tmp_path: Path) -> None:
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


def test_two_keyed_processes_cannot_share_a_context(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        settings = {"directory": tmp_path / "two", "authorized": proxy.authorized}
        make_key_file(tmp_path / "two" / "key", pair("p2").secret)
        with pytest.raises(ConfigurationError, match="another context"):
            Running(settings.pop("directory"), proxy.context, **settings).start()
        assert serves(proxy, proxy.serving("t"), proxy.peer("ann"))


@ADDRESSES
def test_the_report_has_the_facts_of_the_access_list_and_the_counts(tmp_path: Path, addresses: dict[str, None]) -> None:
    with locked(tmp_path, **addresses) as proxy:
        report = proxy.report()
        assert report["authorized_lines"] == len(USUAL)
        assert report["authorized_digest"] == parse("".join(f"{each}\n" for each in USUAL).encode()).digest
        assert report["counters"]["handshakes_entered"] == 1
        assert report["counters"]["servers_under_a_wrong_name"] == 0
        assert (report["problems"], report["insecure"]) == ([], "")
