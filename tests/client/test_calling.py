"""The encoding of requests and replies, and the table of calls: kept, forgotten and refused calls.

The rule is docs/explanation/calls.md, X4.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import SERVICE_PARTS_MAX, TOPIC_LENGTH_MAX
from pubsub.client.core import calling
from pubsub.client.core.calling import DONE, EXPIRED, FAILED, WAITING, Reply
from pubsub.client.core.message import Message
from pubsub.client.core.outbox import Draft
from pubsub.client.errors import CallExpired, CallFailed
from pubsub.client.storage import call_table
from pubsub.client.storage.call_table import CallTable
from pubsub.client.storage.store import Store
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, DecodeError, InvalidName, TooLarge
from pubsub.protocol import Run, decode_headers, encode_headers
from pubsub.protocol.names import is_reply_topic, is_service_topic, is_topic, reply_topic, service_topic

IDS = st.text("abcXYZ019._-", min_size=1, max_size=64).filter(lambda text: text not in {".", ".."})
HEADERS = st.dictionaries(st.text("abc-", min_size=1, max_size=5), st.binary(max_size=20), max_size=4)


def message(headers: dict[str, bytes], sender: str = "shop", body: bytes = b"body", key: bytes = b"") -> Message:
    run = Run("0" * 16, 1, f"{sender}/0123456789abcdef", 1, 0, 0, [len(body)], [key], [encode_headers(headers)])
    return Message("$calls.billing", body, run, 0)


@given(IDS, IDS, HEADERS, st.none() | st.floats(0, 4e9), st.binary(max_size=9))
def test_a_request_round_trips(
    caller: str, call: str, headers: dict[str, bytes], due: float | None, key: bytes
) -> None:
    found = calling.read_request(message(calling.request_headers(caller, call, headers, due), caller, key=key))
    assert (found.id, found.caller, found.body, found.key) == (call, caller, b"body", key)
    assert found.headers == headers
    assert (found.deadline is None) == (due is None)
    assert due is None or abs((found.deadline or 0.0) - due) <= 0.001
    assert found.reply_topic == reply_topic(caller)


@given(IDS, st.sampled_from([DONE, FAILED, EXPIRED]))
def test_a_reply_round_trips(call: str, outcome: str) -> None:
    assert calling.read_reply(message(calling.reply_headers(call, outcome))) == (call, outcome)


@given(st.dictionaries(st.sampled_from([calling.ID, calling.REPLY_TO, calling.DEADLINE, calling.OUTCOME]),
                       st.binary(max_size=30) | st.sampled_from([b"c", b"$replies.shop", b"12", b"done"])))  # fmt: skip
def test_headers_raise_only_decode_error(headers: dict[str, bytes]) -> None:
    for read in (calling.read_request, calling.read_reply):
        with suppress(DecodeError):
            read(message(headers))


@pytest.mark.parametrize(
    "wrong",
    [
        {calling.ID: b""},
        {calling.ID: b"a b"},
        {calling.ID: b".."},
        {calling.REPLY_TO: b"orders"},
        {calling.REPLY_TO: b"$replies.other"},
        {calling.REPLY_TO: b"$replies.shop "},
        {calling.DEADLINE: b"soon"},
        {calling.DEADLINE: b"-1"},
        {calling.DEADLINE: b"9" * 16},
    ],
)
def test_an_invalid_request_is_refused(wrong: dict[str, bytes]) -> None:
    with pytest.raises(DecodeError):
        calling.read_request(message(calling.request_headers("shop", "c", {}, 5.0) | wrong))


def test_a_reply_goes_to_the_sender_only() -> None:
    """Otherwise a request that names another client's topic would make the worker put a message there."""
    forged = calling.request_headers("victim", "c", {}, None)
    with pytest.raises(DecodeError, match="of another client"):
        calling.read_request(message(forged, sender="mallory"))


def test_topics_of_calls_fit_and_differ_from_others() -> None:
    longest = service_topic("x" * 64, SERVICE_PARTS_MAX - 1, SERVICE_PARTS_MAX)
    assert is_topic(longest)
    assert len(longest) <= TOPIC_LENGTH_MAX
    assert is_topic(reply_topic("x" * 64))
    assert (is_service_topic(longest), is_reply_topic(longest)) == (True, False)
    assert (is_service_topic(reply_topic("a")), is_reply_topic(reply_topic("a"))) == (False, True)
    for other in ("orders", "$x", "$callsx", "$replie", "_calls.a"):
        assert not is_service_topic(other)
        assert not is_reply_topic(other)
    assert calling.service_of("$calls.a.b:1of2") == "a.b"
    assert calling.service_of("orders.x") == ""


@given(st.binary(max_size=20), st.integers(1, SERVICE_PARTS_MAX))
def test_each_key_has_one_part(key: bytes, parts: int) -> None:
    topic = calling.topic_of("billing", key, parts)
    assert topic == calling.topic_of("billing", key, parts)
    assert topic in {service_topic("billing", part, parts) for part in range(parts)}


@pytest.mark.parametrize(("part", "parts"), [(0, 0), (1, 1), (-1, 2), (0, SERVICE_PARTS_MAX + 1), (0.5, 2), (True, 2)])
def test_a_missing_part_is_refused(part: int, parts: int) -> None:
    with pytest.raises(CallerError, match="whole number from"):
        calling.check_service("billing", part, parts)


def test_invalid_names_are_refused() -> None:
    for name in ("", "a b", "..", "x" * 65):
        with pytest.raises(InvalidName):
            calling.check_service(name)
    with pytest.raises(InvalidName, match="the calls' own"):
        calling.check_own_headers({"pubsub-call": b"forged"})


def test_a_repeated_request_differs_from_another_request() -> None:
    one = calling.fingerprint("$calls.a", b"body", b"k", {"h": b"1"})
    assert one == calling.fingerprint("$calls.a", b"body", b"k", {"h": b"1"})
    others = [("$calls.b", b"body", b"k", {"h": b"1"}), ("$calls.a", b"bodyk", b"", {"h": b"1"}),
              ("$calls.a", b"body", b"k", {"h": b"2"}), ("$calls.a", b"body", b"k", {})]  # fmt: skip
    assert one not in {calling.fingerprint(*other) for other in others}


def test_the_text_of_an_error_reply_is_bounded() -> None:
    assert len(calling.error_body("é" * 5000)) <= 4 * calling.ERROR_CHARACTERS_MAX
    assert decode_headers(encode_headers(calling.reply_headers("c", FAILED)))[calling.OUTCOME] == b"failed"


# The table


class Kept:
    """A store with a table of calls."""

    def __init__(self, path: Path) -> None:
        self.store = Store(path / "c.db")
        self.table = CallTable(self.store)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self.store.transaction(fsync=False):
            yield Transaction(self.store, Draft(None))  # type: ignore[arg-type]

    def add(self, *calls: str, named: bool = True) -> None:
        with self.transaction() as transaction:
            for call in calls:
                self.table.add(transaction, call, "$calls.billing", b"told by", 5.0, None, named=named)

    def answer(self, call: str, body: bytes = b"r", outcome: str = DONE, *, told: bool = False) -> bool:
        with self.transaction() as transaction:
            found = self.table.answer(transaction, call, outcome, body, 6.0)
            if told:
                self.table.tell(transaction, call)
            return found

    def ids(self) -> list[str]:
        return [call.id for call in self.table.all()]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.store.close()


def test_a_call_waits_until_its_first_answer(kept: Kept) -> None:
    kept.add("a", "b")
    found = kept.table.find("a")
    assert found is not None
    assert (found[0].outcome, found[0].service, found[1:]) == (WAITING, "billing", ("$calls.billing", b"told by"))
    assert kept.answer("a", b"one")
    assert not kept.answer("a", b"two")
    assert not kept.answer("none")
    state = kept.table.all()[0]
    assert state.reply() == Reply("a", "billing", b"one")
    assert (state.answered, state.told, kept.table.all()[1].outcome) == (6.0, False, WAITING)


@pytest.mark.parametrize(("outcome", "error"), [(FAILED, CallFailed), (EXPIRED, CallExpired)])
def test_an_error_reply_is_raised_each_time(kept: Kept, outcome: str, error: type[Exception]) -> None:
    kept.add("a")
    kept.answer("a", b"why", outcome)
    for _ in range(2):
        with pytest.raises(error, match="call a of billing: why"):
            kept.table.all()[0].reply()


def test_the_same_id_is_one_call(kept: Kept) -> None:
    kept.add("a")
    with pytest.raises(apsw.ConstraintError):
        kept.add("a")


def test_a_full_call_table_forgets_the_oldest_delivered_calls(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_table, "CALLS_MAX", 3)
    monkeypatch.setattr(call_table, "FORGET_ROWS", 1)
    kept.add("a", "b", "c")
    kept.answer("b", told=True)
    kept.answer("a")
    kept.add("d")
    assert kept.ids() == ["a", "c", "d"]
    with pytest.raises(TooLarge, match="CALLS_MAX = 3"):
        kept.add("e")
    assert kept.ids() == ["a", "c", "d"]
    assert kept.store.db.execute("select count(*) from pubsub_replies").get == 1


def test_a_named_call_stays_known_after_it_made_room_and_an_unnamed_one_does_not(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_table, "CALLS_MAX", 2)
    kept.add("named")
    kept.add("random", named=False)
    for call in ("named", "random"):
        kept.answer(call, told=True)
    kept.add("next")
    assert kept.ids() == ["next"]
    assert kept.table.find_over("named") == ("$calls.billing", b"told by")
    assert kept.table.find_over("random") is None
    with kept.transaction() as transaction:
        assert kept.table.forget(transaction, "named")
    assert kept.table.find_over("named") is None


def test_replies_are_bounded_by_their_bytes_too(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_table, "CALL_REPLIES_BYTES_MAX", 100)
    monkeypatch.setattr(call_table, "FORGET_ROWS", 1)
    kept.add("a", "b")
    kept.answer("a", bytes(60), told=True)
    kept.answer("b", bytes(60))
    kept.add("c")
    assert kept.ids() == ["b", "c"]
    kept.answer("c", bytes(60))
    with pytest.raises(TooLarge, match="CALL_REPLIES_BYTES_MAX"):
        kept.add("d")


def test_a_call_can_be_forgotten_with_its_reply(kept: Kept) -> None:
    kept.add("a", "b")
    kept.answer("a")
    with kept.transaction() as transaction:
        assert kept.table.forget(transaction, "a")
        assert not kept.table.forget(transaction, "a")
    assert kept.ids() == ["b"]
    assert kept.store.db.execute("select count(*) from pubsub_replies").get == 0


def test_a_store_of_an_earlier_release_gets_the_tables(tmp_path: Path) -> None:
    store = Store(tmp_path / "c.db")
    for table in ("pubsub_calls", "pubsub_replies", "pubsub_calls_over", "pubsub_letters_beside"):
        store.db.execute(f"drop table {table}")
    store.close()
    again = Store(tmp_path / "c.db")
    assert CallTable(again).all() == []
    again.close()


@pytest.mark.parametrize("doubtful", [False, True])
def test_a_request_is_as_doubtful_as_its_message(doubtful: bool) -> None:
    came = message(calling.request_headers("shop", "c-1", {}, None))
    came.doubtful = doubtful
    assert calling.read_request(came).doubtful is doubtful
