"""Refusing proxies in the core alone: skipped in the rotation, asked again, and reported.

The rule is docs/explanation/protocol.md, V8.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rig import LOG, Rig, records, status

from pubsub.client.core.proxy_refusals import accepted, refused
from pubsub.client.core.refusing_proxies import RETRY_REFUSED_SECONDS, RefusingProxies
from pubsub.client.core.retries import Retries
from pubsub.errors import KeyRefused
from pubsub.protocol import Get, Outcome


def said(refusing: RefusingProxies) -> str:
    """Return the error of a call; "" if there is none."""
    try:
        refusing.check()
    except KeyRefused as error:
        return str(error)
    return ""


def test_a_call_ends_only_if_all_proxies_refuse_and_names_each_reason() -> None:
    refusing = RefusingProxies(2)
    assert said(refusing) == ""
    refusing.refused(1, "second: no", 1.0)
    assert (refusing.closed, said(refusing)) == (False, "")
    refusing.refused(0, "first: no", 1.0)
    assert (refusing.closed, said(refusing)) == (True, "first: no; second: no")
    refusing.refused(0, "first: never", 2.0)
    assert said(refusing) == "first: never; second: no"
    assert refusing.opened(1)
    assert (refusing.closed, said(refusing)) == (False, "")
    assert not refusing.opened(0)
    assert not refusing.refusals


def test_the_error_names_refusing_and_silent_proxies() -> None:
    refusing = RefusingProxies(3)
    proxies = ["a", "b", "c"]
    assert refusing.silence(proxies) == "no answer from a, b, c"
    refusing.refused(1, "b: no", 1.0)
    assert refusing.silence(proxies) == "no answer from a, c; b: no"
    refusing.refused(0, "a: no", 1.0)
    refusing.refused(2, "c: no", 1.0)
    assert refusing.silence(proxies) == "a: no; b: no; c: no"


def test_a_call_asks_again_unless_the_last_refusal_is_young() -> None:
    refusing = RefusingProxies(1)
    refusing.retry(0.0)
    assert not refusing.retry_due  # Nobody refuses.
    refusing.refused(0, "no", 10.0)
    refusing.retry(10.0 + RETRY_REFUSED_SECONDS / 2)
    assert (refusing.closed, refusing.retry_due) == (True, False)
    refusing.retry(10.0 + RETRY_REFUSED_SECONDS)
    assert (refusing.closed, refusing.retry_due, refusing.refusals) == (False, True, {})


@given(
    st.integers(1, 5).flatmap(
        lambda count: st.tuples(
            st.just(count), st.integers(0, count - 1), st.sets(st.integers(0, count - 1)), st.integers(0, 40)
        )
    )
)
def test_no_try_goes_to_a_proxy_that_refuses_while_another_does_not(
    case: tuple[int, int, set[int], int],
) -> None:
    count, first, refusals, failures = case
    refusing = RefusingProxies(count)
    retries = Retries(count, 3, 0.1, first, refusing)
    for proxy in refusals:
        refusing.refused(proxy, "no", 1.0)
    retries.refused()
    asked = {retries.proxy}
    for _ in range(failures):
        retries.fail()
        asked.add(retries.proxy)
    if len(refusals) < count:
        assert not asked & refusals
    if failures >= 3 * count:
        assert asked == (set(range(count)) - refusals or set(range(count)))


def test_a_put_goes_to_the_other_proxy_in_the_same_turn() -> None:
    rig = Rig()
    rig.put(1)
    (first,) = rig.turn()
    assert first.proxy == 0
    refused(rig.core, 0, "no", rig.now)
    (second,) = rig.turn()
    assert (second.proxy, second.message.counter) == (1, first.message.counter)  # type: ignore[union-attr]
    rig.answer(second, status(Outcome.SUCCESS, last=second.message.counter, log=LOG))  # type: ignore[union-attr]
    rig.put(1)
    (third,) = rig.turn()
    assert third.proxy == 1
    assert rig.later(0.1)[0].proxy == 1


def test_a_get_goes_to_the_other_proxy_in_the_same_turn() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (first,) = rig.wants(sub)
    assert first.proxy == 0
    refused(rig.core, 0, "no", rig.now)
    (second,) = rig.turn()
    assert (second.proxy, type(second.message)) == (1, Get)
    rig.answer(first, records(1, [1]))  # The answer that came all the same is another transmission's.
    assert not sub.available
    rig.answer(second, records(1, [1]))
    assert sub.available


def test_a_refusal_by_an_unused_proxy_changes_nothing() -> None:
    rig = Rig()
    rig.put(1)
    rig.turn()
    refused(rig.core, 1, "no", rig.now)
    assert rig.turn() == []
    assert rig.core.proxy == 0


def test_waiting_requests_are_sent_as_soon_as_one_proxy_accepts_again() -> None:
    rig = Rig()
    sub, _ = rig.intend()
    (row,) = rig.put(1)
    rig.turn()
    for proxy in (0, 1):
        refused(rig.core, proxy, "no", rig.now)
    assert rig.core.refusing.closed
    rig.turn()
    rig.now += 0.01
    accepted(rig.core, 1)
    out = rig.turn()
    assert {one.proxy for one in out} == {1}
    assert {type(one.message).__name__ for one in out} == {"Put", "Subscribe"}
    assert rig.core.proxy == 1
    assert row.body is not None
    assert not sub.intent.settled


def test_a_second_accepting_proxy_changes_nothing() -> None:
    rig = Rig()
    refused(rig.core, 0, "no", rig.now)
    rig.put(1)
    (out,) = rig.turn()
    accepted(rig.core, 0)
    assert rig.turn() == []
    assert (out.proxy, rig.core.proxy) == (1, 1)


@pytest.mark.parametrize("call", ["put", "settle", "check", "want"])
def test_each_call_makes_refusing_proxies_asked_again(call: str) -> None:
    rig = Rig(proxies=1)
    sub = rig.subscribed()
    refused(rig.core, 0, "no", rig.now)
    rig.now += RETRY_REFUSED_SECONDS
    until = rig.now + 10.0
    if call == "put":
        rig.put(1)
    elif call == "want":
        rig.core.want(sub, until, rig.now)
    else:
        getattr(rig.core, call)(sub, until)
    rig.turn()
    assert rig.core.refusing.retry_due
    assert not rig.core.refusing.closed
