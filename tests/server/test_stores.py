"""A server keeps the directory of stores that proxies report, and sends it to proxies that have forgotten it."""

from __future__ import annotations

import pytest

from pubsub.protocol import Heartbeat, Operate, Outcome, Periodic, Status
from pubsub.protocol.stores import STORES_MAX, Known, format_stores
from tests.server.stage import Stage

A, B = "a" * 16, "b" * 16


def tell(stage: Stage, stores: dict[str, Known] | None = None, gone: dict[str, int] | None = None) -> None:
    """A proxy's answer to an announcement."""
    lost = {store: Known("", incarnation) for store, incarnation in (gone or {}).items()}
    said = Status("p1", Outcome.SUCCESS, stores=format_stores(stores or {}), gone=format_stores(lost))
    stage.say(said, origin=b"", callback=0)
    stage.loop()


def announced(stage: Stage) -> tuple[str, str]:
    """The roster of the last full announcement."""
    stage.core.proxies.announce_all(stage.now)
    stage.loop()
    said = [out.message for out in stage.sent if isinstance(out.message, Periodic) and not out.message.partial]
    return said[-1].stores, said[-1].gone


def test_a_store_reported_by_a_proxy_is_announced_also_after_a_restart(stage: Stage) -> None:
    tell(stage, {A: Known("s2", 7), B: Known("", 0)})
    for _ in range(2):
        assert announced(stage) == (format_stores({A: Known("s2", 7), B: Known("", 0)}), "")
        stage.restart()


def test_a_new_store_is_announced_to_every_proxy_at_once(stage: Stage) -> None:
    stage.loop()
    tell(stage, {A: Known("s2", 7)})
    stage.sent.clear()
    stage.loop()
    said = {out.link: out.message.stores for out in stage.sent if isinstance(out.message, Periodic)}
    assert said == dict.fromkeys((0, 1), format_stores({A: Known("s2", 7)}))


def test_a_store_is_not_announced_before_it_is_on_the_disk(stage: Stage) -> None:
    stage.fail_commit = True
    tell(stage, {A: Known("s2", 7)})
    stage.fail_commit = False
    assert announced(stage) == ("", "")
    tell(stage, {A: Known("s2", 7)})
    assert announced(stage)[0] == format_stores({A: Known("s2", 7)})


def test_the_servers_own_store_is_not_another_one(stage: Stage) -> None:
    tell(stage, {stage.core.state.store_id: Known("s1", 1)})
    assert announced(stage) == ("", "")


def test_a_gone_store_is_announced_as_gone_until_it_is_started_again(stage: Stage) -> None:
    tell(stage, {A: Known("s2", 7)})
    tell(stage, gone={A: 8})
    tell(stage, {A: Known("s2", 8)})
    assert announced(stage) == ("", format_stores({A: Known("", 8)}))
    stage.restart()
    tell(stage, {A: Known("s2", 9)})
    assert announced(stage) == (format_stores({A: Known("s2", 9)}), "")


def test_a_store_is_gone_up_to_its_latest_known_start(stage: Stage) -> None:
    """An operator forgets a store as the one that it was when it was heard last."""
    tell(stage, {A: Known("s2", 7)})
    tell(stage, gone={A: 7})
    assert announced(stage) == ("", format_stores({A: Known("", 7)}))


def test_a_store_that_was_started_since_is_not_gone(stage: Stage) -> None:
    tell(stage, {A: Known("s2", 9)})
    tell(stage, gone={A: 8})
    assert announced(stage)[0] == format_stores({A: Known("s2", 9)})


def test_more_stores_than_the_limit_are_counted(stage: Stage) -> None:
    for first in (0, STORES_MAX - 1):
        tell(stage, {f"{number:016x}": Known("s2", 1) for number in range(first, first + STORES_MAX - 1)})
    assert len(stage.core.stores.known) == STORES_MAX
    assert stage.core.state.counters["stores_not_remembered"] == STORES_MAX - 2


@pytest.mark.parametrize(("draining", "holds", "empty"), [(1, False, 1), (0, False, 0), (1, True, 0)])
def test_a_drained_server_without_topics_says_so_when_it_leaves(
    stage: Stage, draining: int, holds: bool, empty: int
) -> None:
    if holds:
        stage.put("t", 1)
    if draining:
        stage.ask(Operate("op", "s1", "drain"))
    stage.sent.clear()
    stage.core.leave(stage.now)
    stage.loop()
    said = [out.message for out in stage.sent if isinstance(out.message, Heartbeat)]
    assert [(one.leaving, one.empty) for one in said] == [(1, empty)] * 2
