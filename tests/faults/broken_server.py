"""A server that is broken on purpose: `python -m tests.faults.broken_server BREAKAGE,… FILE server start …`.

Some breakages begin when FILE is there, so that a test chooses the moment.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

import pubsub.server.requests.puts
import pubsub.server.storage.store
from pubsub.cli import main
from pubsub.protocol import Outcome, Status
from pubsub.server.core import ServerCore
from pubsub.server.state.replies import Outgoing
from pubsub.server.storage.applying import Applying
from pubsub.server.storage.checkpoint import Checkpointer
from pubsub.server.storage.store import Store
from pubsub.server.topic.changes import BatchAppended, SubscriptionChanged
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.topic import Topic, Verdict


def not_at_all(_: Path) -> None:
    """As it is: what the same test says of a server that is right."""


def take_repeats(_: Path) -> None:
    """Duplicate detection off."""

    def judge(last: int, counter: int, count: int, previous: int) -> Verdict:
        return Verdict.GAP if previous > last else Verdict.TAKE

    _patch(pubsub.server.requests.puts, "judge", judge)


def take_without_predecessors(_: Path) -> None:
    """The put chain off."""

    def judge(last: int, counter: int, count: int, previous: int) -> Verdict:
        return Verdict.DUPLICATE if counter + count - 1 <= last else Verdict.TAKE

    _patch(pubsub.server.requests.puts, "judge", judge)


def ignore_last(_: Path) -> None:
    """The position that a GET names is ignored."""
    _patch(Topic, "acknowledge", lambda *_: True)

    def reading(_: Topic, cursor: Cursor, __: object) -> object:
        return cursor.backlog

    _patch(Topic, "reading", reading)


def answer_before_commit(begin: Path) -> None:
    """Answers leave while the transaction is open, and stays open."""
    right_begin, right_commit = Store.begin, Store.commit

    def begin_once(self: Store) -> None:
        if not self.db.in_transaction:
            right_begin(self)

    def commit(self: Store) -> None:
        if begin.exists():
            self._applying.fresh.clear()
        else:
            right_commit(self)

    _patch(Store, "begin", begin_once)
    _patch(Store, "commit", commit)


def no_larger_files(begin: Path) -> None:
    """No file grows beyond so many bytes as FILE says."""
    limit = int(begin.read_text())
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


class _File(apsw.VFSFile):
    """A file of the operating system's that says when it is written and synced, and may refuse to be synced."""

    before_write: Callable[[str], None] = staticmethod(lambda _: None)
    before_sync: Callable[[str], None] = staticmethod(lambda _: None)
    after_sync: Callable[[str], None] = staticmethod(lambda _: None)

    def __init__(self, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._name = Path(path).name

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self.before_write(self._name)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self.before_sync(self._name)
        super().xSync(flags)
        self.after_sync(self._name)


class _Disk(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("test", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> _File:  # noqa: N802
        return _File(name, flags)


_disks: list[_Disk] = []


def _own_disk() -> None:
    """Have SQLite use our files. They share no memory, so there is one connection, and no checkpoints beside it."""
    if not _disks:
        _disks.append(_Disk())
        _patch(
            pubsub.server.storage.store,
            "_PRAGMAS",
            (("locking_mode", "exclusive"), *pubsub.server.storage.store._PRAGMAS),
        )
        _patch(Checkpointer, "start", lambda _: None)
        _patch(Checkpointer, "stop", lambda _: None)


def fail_to_sync(begin: Path) -> None:
    """Every fsync fails while FILE is there."""

    def refuse(_: str) -> None:
        if begin.exists():
            raise apsw.IOError("the test's disk does not sync")

    _own_disk()
    _File.before_sync = staticmethod(refuse)


def record_syncs(begin: Path) -> None:
    """FILE.book lists, in order: made X, write, sync (of the log), answer X.

    X is `put N`, up to this counter, or `subscription N`, the number of a subscription or its end.
    """
    lines = begin.with_suffix(".book").open("a", buffering=1)

    def on_log(word: str) -> Callable[[str], None]:
        return staticmethod(lambda name: lines.write(f"{word}\n") if name.endswith("-wal") else None)

    _own_disk()
    _File.before_write, _File.after_sync = on_log("write"), on_log("sync")
    append, change_subscription = Applying.APPLY[BatchAppended], Applying.APPLY[SubscriptionChanged]
    outgoing = ServerCore.outgoing

    def recording_append(self: Applying, change: BatchAppended) -> object:
        lines.write(f"made put {change.counter + change.count - 1}\n")
        return append(self, change)

    def recording_change_subscription(self: Applying, change: SubscriptionChanged) -> object:
        lines.write(f"made entry {change.number}\n")
        return change_subscription(self, change)

    def recording_outgoing(self: ServerCore, now: float) -> list[Outgoing]:
        messages = outgoing(self, now)
        for out in messages:
            if isinstance(out.message, Status) and out.message.outcome is Outcome.SUCCESS:
                if out.message.last > 0:
                    lines.write(f"answer put {out.message.last}\n")
                if out.message.number > 0:
                    lines.write(f"answer entry {out.message.number}\n")
        return messages

    Applying.APPLY[BatchAppended] = recording_append
    Applying.APPLY[SubscriptionChanged] = recording_change_subscription
    _patch(ServerCore, "outgoing", recording_outgoing)


def sync_nothing(_: Path) -> None:
    """Commits are not synced."""
    pragmas = pubsub.server.storage.store._PRAGMAS
    _patch(
        pubsub.server.storage.store, "_PRAGMAS", tuple((name, 1 if name == "synchronous" else v) for name, v in pragmas)
    )


BREAKAGES = {
    function.__name__: function
    for function in (
        not_at_all,
        take_repeats,
        take_without_predecessors,
        ignore_last,
        answer_before_commit,
        no_larger_files,
        fail_to_sync,
        record_syncs,
        sync_nothing,
    )
}


def _patch(owner: Any, name: str, value: object) -> None:
    assert hasattr(owner, name), f"{owner} has no {name} to break"
    setattr(owner, name, value)


if __name__ == "__main__":
    for breakage in sys.argv[1].split(","):
        BREAKAGES[breakage](Path(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
