"""A topic that moves, or is joined, and what there may be much of: bytes that wait, subscriptions, staged rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.protocol import Subscribe
from tests.server.moving import Pair, put, take


@pytest.mark.parametrize("restarted", [False, True])
def test_a_backlog_that_came_along_counts_towards_the_limit(tmp_path: Path, restarted: bool) -> None:
    pair = Pair(tmp_path, "s1", "s2", backlog_bytes_max=500)
    pair["s1"].ask(Subscribe("bob", "t", 5, 5))
    assert put(pair["s1"], "alice", 10, 0, b"k" * 400) == "success"
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]
    if restarted:
        pair["s2"].restart()
    assert put(pair["s2"], "alice", 11, 10, b"k" * 400) == "full"
    assert take(pair["s2"], "bob") == [b"k" * 400]
    pair.close()
