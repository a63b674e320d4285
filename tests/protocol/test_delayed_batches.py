"""The due time in a put's batch, and the publisher in a delivered one."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import NUMBER_MAX, ORIGIN_BYTES_MAX
from pubsub.errors import DecodeError
from pubsub.protocol import Records, check_batch, decode_batch, encode_batch
from pubsub.protocol.batch import DELAYED, DUE, decode_blocks, decode_keys, due_of, origin_of, with_origin
from pubsub.protocol.headers import encode_headers
from pubsub.protocol.names import delay_publisher, is_id, is_publisher
from pubsub.protocol.records import RecordsBuilder

ALICE, LOG = "alice/00000000000000aa", "00000000000000bb"
BODIES = st.lists(st.binary(max_size=20), min_size=1, max_size=5)


@given(BODIES, st.booleans(), st.booleans(), st.integers(1, NUMBER_MAX))
def test_a_batch_keeps_its_due_time_and_then_its_origin(
    bodies: list[bytes], keyed: bool, headed: bool, due: int
) -> None:
    keys = [b"k"] * len(bodies) if keyed else []
    blocks = [encode_headers({"a": b"b"})] * len(bodies) if headed else []
    batch = encode_batch(bodies, keys, blocks, due)
    check_batch(batch, len(bodies), crc32(batch), delays=DUE)
    assert due_of(batch) == due
    late = with_origin(batch, ALICE, 7)
    check_batch(late, len(bodies), crc32(late), delays=DELAYED)
    assert (due_of(late), origin_of(late)) == (0, (ALICE, 7))
    assert len(late) - len(batch) <= ORIGIN_BYTES_MAX
    for found in (batch, late):
        assert decode_batch(found)[: len(bodies)] == bodies
        assert (decode_keys(found), decode_blocks(found)) == (keys, blocks)


def test_only_a_put_may_have_a_due_time_and_only_a_log_an_origin() -> None:
    batch = encode_batch([b"x"], due=5)
    late = with_origin(batch, ALICE, 7)
    for found, delays in ((batch, 0), (batch, DELAYED), (late, 0), (late, DUE)):
        with pytest.raises(DecodeError, match="is not known"):
            check_batch(found, 1, crc32(found), delays=delays)


@given(st.binary(max_size=60))
def test_any_other_end_of_a_delayed_batch_is_refused(end: bytes) -> None:
    late = with_origin(encode_batch([b"x"], due=5), ALICE, 7)
    broken = late[: -len(end) or None] + end if end else late[:-1]
    if broken != late:
        with pytest.raises(DecodeError):
            check_batch(broken, 1, crc32(broken), delays=DELAYED)


def test_an_answer_names_the_origin_of_each_delayed_run() -> None:
    builder = RecordsBuilder()
    late = with_origin(encode_batch([b"1", b"2", b"3"], [b"k"] * 3, due=5), ALICE, 7)
    builder.add(LOG, 1, ALICE, 1, 50, encode_batch([b"0"]), 0, 1)
    builder.add(LOG, 3, delay_publisher(LOG), 4, 51, late, 1, 3)
    records = Records(builder.build())
    plain, run = records.runs
    assert list(records.bodies()) == [b"0", b"2", b"3"]
    assert (plain.put_by, plain.put_as, plain.publisher) == ("", 0, ALICE)
    assert (run.put_by, run.put_as, run.publisher, run.counter) == (ALICE, 8, delay_publisher(LOG), 4)
    assert run.keys == [b"k", b"k"]


def test_an_answer_without_delayed_runs_has_the_form_of_earlier_releases() -> None:
    builder = RecordsBuilder()
    builder.add(LOG, 1, ALICE, 1, 50, encode_batch([b"0"]), 0, 1)
    assert builder.build()[1] == 0


def test_no_client_has_the_name_of_a_logs_delayed_messages() -> None:
    name = delay_publisher(LOG)
    assert is_publisher(name)
    assert not is_id(name.partition("/")[0])
