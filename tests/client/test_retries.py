"""The rotation over proxies.

The rule is docs/explanation/protocol.md, V6.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pubsub.client.core.retries import TRY_SECONDS_MAX, Retries


def test_three_tries_a_proxy_then_the_next_and_the_patience_doubles_each_round() -> None:
    tries = Retries(2, 3, 0.1)
    seen = []
    for _ in range(14):
        seen.append((tries.proxy, round(tries.patience, 3)))
        tries.fail()
    assert seen == [(0, 0.1)] * 3 + [(1, 0.1)] * 3 + [(0, 0.2)] * 3 + [(1, 0.2)] * 3 + [(0, 0.4)] * 2


def test_a_request_stays_with_the_proxy_that_works() -> None:
    tries = Retries(3, 3, 0.1, 2)
    assert tries.proxy == 2
    tries.fail()
    tries.restart(1)
    assert (tries.proxy, tries.patience) == (1, 0.1)


def test_a_new_call_does_not_begin_again_at_a_proxy_that_failed() -> None:
    tries = Retries(2, 3, 0.1)
    for _ in range(4):
        tries.fail()
    tries.renew(0)
    assert (tries.proxy, tries.patience) == (1, 0.1)
    for _ in range(12):
        tries.fail()
    tries.renew(0)
    assert tries.patience == 0.1


def test_short_calls_in_turn_reach_every_proxy() -> None:
    tries = Retries(3, 3, 0.1)
    seen = set()
    for _ in range(9):
        tries.renew(0)
        seen.add(tries.proxy)
        tries.fail()
    assert seen == {0, 1, 2}


@given(st.integers(1, 64), st.integers(1, 5), st.floats(0.001, 30), st.integers(0, 100_000))
def test_patience_has_a_limit_and_the_proxy_exists(proxies: int, tries: int, seconds: float, failed: int) -> None:
    state = Retries(proxies, tries, seconds)
    state.failed = failed
    assert seconds <= state.patience <= max(TRY_SECONDS_MAX, seconds)
    state.fail()
    assert 0 <= state.proxy < proxies
