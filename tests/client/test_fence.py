"""Accepted and ignored answers, dropped records, and the choice of the server."""

from __future__ import annotations

from pubsub.client.core.fence import Fence

A, B = "a" * 16, "b" * 16


def test_only_the_answer_to_the_last_request_counts() -> None:
    fence = Fence()
    first, second = fence.raise_for_request(), fence.raise_for_request()
    assert not fence.admits(first)
    assert fence.admits(second)
    assert fence.emptied == 0, "what is here stays"


def test_discarded_messages_return_by_no_answer_and_are_in_no_callers_hands() -> None:
    fence = Fence()
    asked, in_hand = fence.raise_for_request(), fence.emptied
    fence.empty()
    assert not fence.admits(asked)
    assert fence.emptied != in_hand


def test_the_log_that_answered_is_named_and_an_answer_without_one_changes_nothing() -> None:
    fence = Fence()
    fence.answered(A)
    fence.answered("")
    assert (fence.log, fence.avoid) == (A, "")
    fence.follow(B)
    fence.follow("")
    assert fence.log == B


def test_a_holder_that_does_not_know_the_subscription_is_avoided_until_one_answers_that_does() -> None:
    fence = Fence()
    fence.answered(A)
    fence.shun(B)
    fence.follow(B)
    assert (fence.log, fence.avoid) == (B, B), "a move does not say that it is known there"
    fence.answered("")
    assert fence.avoid == ""
