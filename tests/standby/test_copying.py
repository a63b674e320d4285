"""Copies between members, step by step: what is sent when, and that a copy does not wait for heartbeats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pubsub.protocol.standby import Copy, EntryId
from pubsub.server.standby.copying import AGAIN_BEATS, Giving
from pubsub.server.standby.disk import MemberDisk
from pubsub.server.standby.local_file import LocalFile
from pubsub.server.standby.register import Identity
from pubsub.server.standby.stored import keep_entry
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c

A, B, STORE = "a" * 16, "b" * 16, "0" * 16
ME = Identity("s1", STORE, A, "tcp://127.0.0.1:1")
MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[MemberDisk]:
    store = Store(tmp_path)
    with store.guarded():
        for number in range(1, 4):
            store.apply([c.BatchAppended(1, number, 1, 1, number, 9, 5, 0, bytes(MIB))])
        keep_entry(store, EntryId(1, 1))
    store.close()
    local = LocalFile(tmp_path)
    local.make(A)
    made = MemberDisk(tmp_path, local)
    yield made
    made.close()


def test_pages_follow_each_other_at_once_and_a_question_waits_for_its_answer(disk: MemberDisk) -> None:
    giving = Giving(ME, disk, 1.0)
    leading: Any = SimpleNamespace(to_copy=lambda: (B, 7), term=1)
    (begin,) = giving.outgoing(leading, 100.0)
    assert begin.step == "begin"
    assert giving.outgoing(leading, 100.1) == []
    assert not giving.pending
    giving.asked(Copy("s1", STORE, B, "hashes", 7, 0, begin.snapshot, 1, min(begin.pages, 1024)), 100.2)
    steps = []
    while (said := giving.outgoing(leading, 100.2)) or giving.pending:
        steps += [one.step for one in said]
    assert steps.count("pages") >= 3
    assert steps[-1] == "checked"
    assert giving.outgoing(leading, 100.2 + AGAIN_BEATS) == []
    assert [one.step for one in giving.outgoing(leading, 100.3 + AGAIN_BEATS)] == ["begin"]
    giving.close()
