"""ZAP frames: the accepted peers at each address; every broken request gets an answer and raises nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.security import access as module
from pubsub.security.access import Access
from pubsub.security.authorized import parse
from pubsub.security.fingerprints import fingerprint
from tests.security.keyring import key, pk

RULES = f"""\
proxy p1 {pk("p1")}
server s1 {pk("s1")}
client alice {pk("alice")} put=*
client spark-* {pk("spark")}
"""


def opened() -> Access:
    return Access(parse(RULES.encode()))


def request(domain: str, owner: str, **changed: bytes) -> list[bytes]:
    fields = {
        "version": b"1.0",
        "id": b"1",
        "domain": domain.encode(),
        "address": b"10.0.0.7",
        "identity": b"",
        "mechanism": b"CURVE",
    } | changed
    return [b"\x00abcd", b"", *fields.values(), key(owner)]


@pytest.mark.parametrize(
    ("domain", "owner", "user"),
    [
        ("clients", "alice", "client:alice"),
        ("clients", "spark", "client:spark-*"),
        ("both", "alice", "client:alice"),
        ("both", "s1", "server:s1"),
        ("servers", "s1", "server:s1"),
    ],
)
def test_an_authorized_key_is_accepted_at_its_address(domain: str, owner: str, user: str) -> None:
    access = opened()
    name = f"{user}#{fingerprint(key(owner))}"
    assert access.zap(request(domain, owner)) == [b"\x00abcd", b"", b"1.0", b"1", b"200", b"", name.encode(), b""]
    assert access.counters == {"handshakes_entered": 1}
    (handshake,) = access.take_handshakes()
    assert (handshake.domain, handshake.address, handshake.user) == (domain, "10.0.0.7", name)
    assert handshake.refused == ""
    assert access.take_handshakes() == []


@pytest.mark.parametrize(
    ("frames", "status", "counter"),
    [
        (request("clients", "mallory"), b"400", "handshakes_refused_key"),
        (request("clients", "s1"), b"400", "handshakes_refused_role"),
        (request("clients", "p1"), b"400", "handshakes_refused_role"),
        (request("servers", "alice"), b"400", "handshakes_refused_role"),
        (request("servers", "p1"), b"400", "handshakes_refused_role"),
        (request("both", "p1"), b"400", "handshakes_refused_role"),
        (request("clients", "alice", mechanism=b"NULL")[:-1], b"400", "handshakes_refused_mechanism"),
        (request("clients", "alice", mechanism=b"NULL"), b"400", "handshakes_refused_mechanism"),
        (
            [*request("clients", "alice", mechanism=b"PLAIN")[:-1], b"admin", b"secret"],
            b"400",
            "handshakes_refused_mechanism",
        ),
        (request("clients", "alice", mechanism=b"GSSAPI"), b"400", "handshakes_refused_mechanism"),
        (request("clients", "alice", mechanism=b"curve"), b"400", "handshakes_refused_mechanism"),
        (request("clients", "alice")[:-1], b"500", "handshakes_malformed"),
        ([*request("clients", "alice"), key("alice")], b"500", "handshakes_malformed"),
        ([*request("clients", "alice")[:-1], key("alice")[:31]], b"500", "handshakes_malformed"),
        ([*request("clients", "alice")[:-1], key("alice") + b"\0"], b"500", "handshakes_malformed"),
        (request("clients", "alice", version=b"2.0"), b"500", "handshakes_malformed"),
        (request("", "alice"), b"500", "handshakes_malformed"),
        (request("Clients", "alice"), b"500", "handshakes_malformed"),
        (request("clients", "alice", identity=b"x" * 256), b"500", "handshakes_malformed"),
        (request("clients", "alice")[:5], b"500", "handshakes_malformed"),
        (request("clients", "alice")[:2], b"500", "handshakes_malformed"),
        ([b"\x00abcd"], b"500", "handshakes_malformed"),
    ],
)
def test_a_refused_handshake_is_counted_and_has_no_user(frames: list[bytes], status: bytes, counter: str) -> None:
    access = opened()
    *envelope, version, _, code, text, user, metadata = access.zap(frames)
    assert envelope == [b"\x00abcd", b""]
    assert (version, code, user, metadata) == (b"1.0", status, b"", b"")
    assert text
    assert access.counters == {counter: 1}
    (handshake,) = access.take_handshakes()
    assert handshake.user == ""
    assert handshake.refused == text.decode()


def test_the_key_of_a_removed_line_is_refused() -> None:
    access = opened()
    access.replace(parse(RULES.replace(pk("alice"), pk("alice2")).encode()))
    assert access.zap(request("clients", "alice"))[4] == b"400"
    assert access.zap(request("clients", "alice2"))[4] == b"200"


def test_the_request_id_and_a_long_envelope_are_returned() -> None:
    frames = [b"one", b"two", *request("clients", "alice", id=b"\x00\xff")[1:]]
    assert opened().zap(frames)[:5] == [b"one", b"two", b"", b"1.0", b"\x00\xff"]


def test_an_empty_request_gets_no_answer() -> None:
    assert opened().zap([]) == []


def test_a_flood_of_handshakes_is_counted_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HANDSHAKES_KEPT_MAX", 5)
    access = opened()
    for _ in range(20):
        access.zap(request("clients", "mallory"))
    assert access.counters["handshakes_refused_key"] == 20
    assert len(access.take_handshakes()) == 5


frame = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"", b"1.0", b"1", b"clients", b"servers", b"both", b"CURVE", b"NULL", key("alice"), key("s1"), b"x" * 300]
    ),
)


@given(st.lists(frame, min_size=1, max_size=10))
def test_any_frames_are_answered_and_only_authorized_keys_are_accepted(frames: list[bytes]) -> None:
    reply = opened().zap(frames)
    *envelope, version, _, status, _, user, metadata = reply
    assert envelope[-1] == b""
    assert (version, metadata) == (b"1.0", b"")
    assert status in {b"200", b"400", b"500"}
    assert bool(user) is (status == b"200")
    if status == b"200":
        assert frames[-1] in {key("alice"), key("s1")}
        assert frames[-2] == b"CURVE"
    assert all(len(each) <= 255 for each in reply[len(envelope) :])


@given(st.integers(1, 8), frame)
def test_a_valid_request_with_one_changed_frame_accepts_nobody_else(place: int, changed: bytes) -> None:
    frames = request("clients", "alice")
    frames[place] = changed
    reply = opened().zap(frames)
    if reply[-4] == b"200":
        assert reply[-2] == f"client:alice#{fingerprint(key('alice'))}".encode()
