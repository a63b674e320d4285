"""Lazy Pirate on the wire of REQ and REP, and the server."""

import pytest

from pubsub.services.core.interface import Answered, Asked, Patience, Requested
from pubsub.services.core.lazy import REQUESTS_MAX, ReplyServer, lazy_caller
from tests.services.stage import Stage

CLIENT = b"\x00client"


def test_golden_frames_of_the_caller():
    stage = Stage(lazy_caller(["tcp://a:1"]))
    stage.do("call", 1, "any", (b"1",), Patience())
    ((lane, peer, frames),) = stage.sent()
    assert (peer, frames) == (b"", (b"", b"1"))
    stage.receive(lane, b"", b"1")
    assert stage.said() == [Answered(1, (b"1",))]


def test_golden_frames_of_the_server():
    stage = Stage(ReplyServer())
    stage.receive("requests", b"", b"1", peer=CLIENT)
    assert stage.said() == [Requested(1, (b"1",))]
    stage.do("reply", 1, (b"1",))
    assert stage.sent() == [("requests", CLIENT, (b"", b"1"))]


def test_the_guide_s_patience_is_the_default():
    assert Patience() == Patience(2.5, 3)


def test_an_empty_request_has_an_empty_body_frame():
    stage = Stage(lazy_caller(["tcp://a:1"]))
    stage.do("call", 1, "", (), Patience())
    assert stage.sent()[0][2] == (b"", b"")


def test_the_server_returns_an_envelope_of_several_addresses():
    stage = Stage(ReplyServer())
    stage.receive("requests", b"far", b"", b"a", b"b", peer=CLIENT).do("reply", 1, (b"c", b"d"))
    assert stage.said()[0].body == (b"a", b"b")
    assert stage.sent() == [("requests", CLIENT, (b"far", b"", b"c", b"d"))]


def test_requests_are_answered_in_any_order_each_to_its_client():
    stage = Stage(ReplyServer())
    stage.receive("requests", b"", b"1", peer=b"a").receive("requests", b"", b"2", peer=b"b")
    stage.do("reply", 2, (b"two",)).do("reply", 1, (b"one",))
    assert [(peer, frames[-1]) for _, peer, frames in stage.sent()] == [(b"b", b"two"), (b"a", b"one")]


def test_a_failed_handler_sends_no_reply_and_no_request_is_answered_twice():
    stage = Stage(ReplyServer())
    stage.receive("requests", b"", b"1", peer=CLIENT).do("fail", 1, "why").do("reply", 1, (b"late",)).do("fail", 1, "")
    assert stage.sent() == []
    assert stage.core.counters["failed"] == 1


def test_parts_go_out_with_the_reply():
    stage = Stage(ReplyServer())
    stage.receive("requests", b"", b"1", peer=CLIENT).do("reply_part", 1, (b"a",)).do("reply_part", 9, (b"x",))
    stage.do("reply", 1, (b"b",))
    assert stage.sent()[0][2] == (b"", b"a", b"b")


def test_an_empty_reply_has_an_empty_body_frame():
    stage = Stage(ReplyServer())
    stage.receive("requests", b"", b"1", peer=CLIENT).do("reply", 1, ())
    assert stage.sent()[0][2] == (b"", b"")


@pytest.mark.parametrize("frames", [[b"x"], [b""], [b"x", b""], [b"x", b"y"]], ids=range(4))
def test_an_invalid_request_is_counted(frames):
    stage = Stage(ReplyServer())
    stage.receive("requests", *frames, peer=CLIENT)
    assert (stage.said(), stage.core.counters["undecodable"]) == ([], 1)


def test_requests_are_read_up_to_the_limit_only():
    stage = Stage(ReplyServer())
    for _ in range(REQUESTS_MAX):
        assert stage.core.reads("requests")
        stage.receive("requests", b"", b"1", peer=CLIENT)
    assert not stage.core.reads("requests")
    stage.do("reply", 1, (b"1",))
    assert stage.core.reads("requests")


def test_a_request_needs_the_right_to_call():
    assert ReplyServer(name="billing").asked("requests", [b"x"]) == Asked("call", "billing")
