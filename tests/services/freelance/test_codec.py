"""Golden frames of the Freelance patterns, and frames that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.errors import DecodeError
from pubsub.services.core.freelance.codec import (
    CONTROL_BYTES_MAX,
    PING,
    PONG,
    decode_controlled,
    decode_number,
    decode_sequenced,
    encode_controlled,
    encode_number,
    encode_sequenced,
)

FRAME = st.binary(max_size=6) | st.sampled_from([b"", b"1", b"PING", b"PONG", b"OK", bytes(300)])


def test_golden_frames_of_model_2() -> None:
    assert encode_sequenced(encode_number(7), (b"random name",)) == (b"", b"7", b"random name")
    assert encode_sequenced(b"7", (b"OK",)) == (b"", b"7", b"OK")
    assert encode_sequenced(b"7", (b"OK",), (b"queue", b"")) == (b"queue", b"", b"7", b"OK")
    assert decode_sequenced([b"", b"7", b"random name"]) == ((b"",), b"7", (b"random name",))
    assert decode_sequenced([b"queue", b"", b"7", b"a", b"", b"b"]) == ((b"queue", b""), b"7", (b"a", b"", b"b"))


def test_golden_frames_of_model_3() -> None:
    assert (PING, PONG) == (b"PING", b"PONG")
    assert encode_controlled(encode_number(7), (b"random name",)) == (b"7", b"random name")
    assert decode_controlled([b"7", b"OK"]) == ((), b"7", (b"OK",))


def test_an_empty_frame_in_model_3_is_an_envelope_if_more_follows() -> None:
    assert decode_controlled([b"7", b"", b"random name"]).body == (b"random name",)
    assert decode_controlled([b"7", b""]).body == (b"",), "an empty body"
    assert decode_controlled([b"7", b"", b"", b"a"]).body == (b"", b"a")


def test_an_empty_body_is_one_empty_frame() -> None:
    assert encode_sequenced(b"7", ()) == (b"", b"7", b"")
    assert encode_controlled(b"7", ()) == (b"7", b"")


@pytest.mark.parametrize(
    "frames",
    [[b"7", b"name"], [b""], [b"", b"7"], [b"", b"", b"name"], [b"", bytes(CONTROL_BYTES_MAX + 1), b"name"]],
    ids=["no empty frame", "nothing", "no body", "no sequence", "too long a sequence"],
)
def test_an_invalid_message_of_model_2_is_refused(frames: list[bytes]) -> None:
    with pytest.raises(DecodeError):
        decode_sequenced(frames)


@pytest.mark.parametrize("frames", [[b"7"], [b"PING"], [b"", b"name"], [bytes(CONTROL_BYTES_MAX + 1), b"name"]])
def test_an_invalid_request_of_model_3_is_refused(frames: list[bytes]) -> None:
    with pytest.raises(DecodeError):
        decode_controlled(frames)


@pytest.mark.parametrize("control", [b"", b"x", b"-1", b"1.0", b" 1", b"1" * 20, "²".encode(), b"\xb2"])
def test_an_invalid_number_is_refused(control: bytes) -> None:
    assert decode_number(control) is None


def test_numbers_are_decimal() -> None:
    assert encode_number(1234) == b"1234"
    assert decode_number(b"1234") == 1234


@given(st.lists(FRAME, min_size=1, max_size=5))
def test_only_decode_error_escapes_and_decoded_frames_are_encoded_alike(frames: list[bytes]) -> None:
    try:
        envelope, control, body = decode_sequenced(frames)
    except DecodeError:
        pass
    else:
        assert [*encode_sequenced(control, body, envelope)] == frames
    try:
        _, control, body = decode_controlled(frames)
    except DecodeError:
        return
    assert [*encode_controlled(control, body)] in (frames, [frames[0], *frames[2:]])
