"""A server that is broken on purpose: `python -m tests.faults.broken_server BREAKAGE FILE server start …`.

Some breakages begin when FILE is there, so that a test chooses the moment.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import pubsub.server.core
from pubsub.cli import main
from pubsub.server.store import Store
from pubsub.server.topic import Entry, Topic, Verdict


def not_at_all(_: Path) -> None:
    """As it is: what the same test says of a server that is right."""


def take_repeats(_: Path) -> None:
    """Duplicate detection off."""

    def judge(last: int, counter: int, count: int, previous: int) -> Verdict:
        return Verdict.GAP if previous > last else Verdict.TAKE

    _patch(pubsub.server.core, "judge", judge)


def take_without_predecessors(_: Path) -> None:
    """The put chain off."""

    def judge(last: int, counter: int, count: int, previous: int) -> Verdict:
        return Verdict.DUPLICATE if counter + count - 1 <= last else Verdict.TAKE

    _patch(pubsub.server.core, "judge", judge)


def ignore_last(_: Path) -> None:
    """The position that a GET names is ignored."""
    _patch(Topic, "acknowledge", lambda *_: (True, False))

    def reading(_: Topic, entry: Entry, __: object) -> object:
        return entry.legs

    _patch(Topic, "reading", reading)


def answer_before_commit(begin: Path) -> None:
    """Answers leave while the transaction is open, and stays open."""
    right_begin, right_commit = Store.begin, Store.commit

    def begin_once(self: Store) -> None:
        if not self.db.in_transaction:
            right_begin(self)

    def commit(self: Store) -> None:
        if begin.exists():
            self._fresh.clear()
        else:
            right_commit(self)

    _patch(Store, "begin", begin_once)
    _patch(Store, "commit", commit)


def small_files(begin: Path) -> None:
    """No file grows beyond so many bytes as FILE says."""
    limit = int(begin.read_text())
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


BREAKAGES = {
    function.__name__: function
    for function in (
        not_at_all,
        take_repeats,
        take_without_predecessors,
        ignore_last,
        answer_before_commit,
        small_files,
    )
}


def _patch(owner: Any, name: str, value: object) -> None:
    assert hasattr(owner, name), f"{owner} has no {name} to break"
    setattr(owner, name, value)


if __name__ == "__main__":
    BREAKAGES[sys.argv[1]](Path(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
