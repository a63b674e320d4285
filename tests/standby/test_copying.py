"""Copies between members, step by step: the time of each message, and that a copy does not wait for heartbeats."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from pubsub.errors import StoreFull
from pubsub.protocol.standby import Copy, EntryId
from pubsub.server.standby.disk import pages
from pubsub.server.standby.disk.applied import keep_entry
from pubsub.server.standby.disk.copying import AGAIN_BEATS, Getting, Giving
from pubsub.server.standby.disk.local_file import LocalFile
from pubsub.server.standby.disk.member_disk import MemberDisk
from pubsub.server.standby.disk.pages import GROWING
from pubsub.server.standby.disk.snapshot import HASH_BYTES
from pubsub.server.standby.election.proposer import Identity
from pubsub.server.standby.replication.follower import Following
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


def test_pages_are_sent_at_once_and_a_question_waits_for_its_answer(disk: MemberDisk) -> None:
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


def getting(disk: MemberDisk) -> tuple[Getting, Following, Copy]:
    """The standby's side, and the first message of a primary's copy."""
    following = Following("s1", STORE, B, disk.end, (), Random(1), 100.0, 1.0)
    begin = Copy("s1", STORE, A, "begin", following.follow().token, 7, EntryId(7, 1), 0, 400, 16384)
    return Getting(replace(ME, member=B), disk, 1.0), following, begin


def copied_bytes(disk: MemberDisk) -> int:
    return (disk.directory / GROWING).stat().st_size


def test_a_standby_copies_its_own_pages_range_by_range(disk: MemberDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "RANGE_PAGES", 16)
    side, following, begin = getting(disk)
    assert not side.receive(begin, following, 100.0)
    assert copied_bytes(disk) == 0
    (asked,) = side.outgoing(following, 100.0)
    assert (asked.first, asked.pages, len(asked.body)) == (1, 16, 16 * HASH_BYTES)
    assert copied_bytes(disk) == 16 * 16384
    side.close()


def test_a_disk_without_space_for_a_range_stops_the_copy_until_the_primary_begins_anew(
    disk: MemberDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, following, begin = getting(disk)
    side.receive(begin, following, 100.0)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", no_space)
        assert side.outgoing(following, 100.0) == []
    assert not side.busy
    side.receive(begin, following, 101.0)
    assert [one.step for one in side.outgoing(following, 101.0)] == ["hashes"]
    side.close()


def test_a_complete_copy_is_not_installed_before_its_stream_has_space(
    disk: MemberDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, following, begin = getting(disk)
    side.receive(begin, following, 100.0)
    monkeypatch.setattr(pages.PageCopy, "take", lambda copy, message: True)
    monkeypatch.setattr(pages.PageCopy, "complete", True)
    last = replace(begin, step="checked")
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", no_space)
        with pytest.raises(StoreFull):
            side.receive(last, following, 100.1)
    side.full(following)
    assert (disk.end, following.applied) == (EntryId(1, 1), EntryId(1, 1))
    side.receive(begin, following, 101.0)
    assert side.receive(last, following, 101.1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", no_space)
        disk.stream.reset(side.taken().snapshot)
    assert disk.stream.end == begin.snapshot


def no_space(*arguments: Any) -> int:
    raise OSError(errno.ENOSPC, "no space left on device")


def test_a_range_is_requested_again_only_after_a_time_without_pages(
    disk: MemberDisk,
) -> None:
    side, following, begin = getting(disk)
    side.receive(begin, following, 100.0)
    assert len(side.outgoing(following, 100.0)) == 1
    page = (3).to_bytes(4, "big") + bytes(16384)
    some = replace(begin, step="pages", first=1, pages=1024, body=page)
    for now in (103.0, 106.0, 109.0):
        side.receive(some, following, now)
        assert side.outgoing(following, now + 0.9) == []
    assert side.outgoing(following, 109.0 + AGAIN_BEATS - 0.1) == []
    assert [one.first for one in side.outgoing(following, 109.0 + AGAIN_BEATS)] == [1]
    side.close()
