"""Publishers by number: given once, and reverted with the loop that gave them."""

from __future__ import annotations

import pytest

from pubsub.server.state import publishers as module
from pubsub.server.state.publishers import Publishers
from pubsub.server.state.uncommitted import Uncommitted
from pubsub.server.topic.changes import PublisherSeen


@pytest.fixture
def known() -> Publishers:
    return Publishers(["", "ann", "", "bob"], Uncommitted({}))


def test_a_name_keeps_its_number_and_a_new_one_gets_the_next(known: Publishers) -> None:
    assert (known.find("ann"), known.find("bob"), known.find("eve"), known.find("")) == (1, 3, None, None)
    assert [known.number(name) for name in ("bob", "eve", "eve")] == [3, 4, 4]
    assert known._uncommitted.rows == [PublisherSeen(4, "eve")]


def test_a_publisher_of_a_reverted_loop_is_unknown_and_leaves_no_gap(known: Publishers) -> None:
    known.number("eve")
    known._uncommitted.committed()
    known.number("dan")
    known._uncommitted.revert()
    assert known.names == ["", "ann", "", "bob", "eve"]
    assert (known.find("dan"), known.find("eve")) == (None, 4)
    assert known.number("carl") == 5


def test_a_store_has_room_for_a_limited_number_of_publishers(
    known: Publishers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STORE_PUBLISHERS_MAX", 4)
    assert not known.full
    known.number("eve")
    assert known.full
