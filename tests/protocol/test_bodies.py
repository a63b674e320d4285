"""Maps in the bodies of messages: they round-trip; anything else raises only `DecodeError`."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.errors import DecodeError
from pubsub.protocol import join_stages, join_topics, split_stages, split_topics
from tests.protocol.test_codec import stage_maps, topic_maps


@given(topic_maps)
def test_topics_with_their_values_round_trip(held):
    assert split_topics(join_topics(held)) == held


@given(st.binary(max_size=200))
def test_topics_from_arbitrary_bytes_raise_only_decode_error(raw):
    with contextlib.suppress(DecodeError):
        split_topics(raw)


@pytest.mark.parametrize("raw", [b"a", b"=x", b"a=b c", b"a=b  c=d", b"a=../x", b"a=,", b"\xff=a", b"a=b=c d\0=e"])
def test_an_invalid_list_of_topics_is_refused(raw):
    with pytest.raises(DecodeError):
        split_topics(raw)


@given(stage_maps)
def test_stages_with_their_rows_round_trip_in_their_order(stages):
    assert list(split_stages(join_stages(stages)).items()) == list(stages.items())


@given(st.binary(max_size=200))
def test_stages_from_arbitrary_bytes_raise_only_decode_error(raw):
    with contextlib.suppress(DecodeError):
        split_stages(raw)


@pytest.mark.parametrize("raw", [b"a", b"=1", b"a=x", b"a=1 a=1", b"a=1  b=1", b"a=-1", b"../x=1", b"\xff=1"])
def test_an_invalid_list_of_stages_is_refused(raw):
    with pytest.raises(DecodeError):
        split_stages(raw)
