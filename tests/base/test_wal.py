"""The write-ahead log as read by the package: its place, the missing pages of a file, the rest of failed commits."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from pubsub.base.wal import blank_behind, commits_behind, frames, log_of, missing_pages

PAGE = 4_096
LOCKED = (1 << 30) // PAGE + 1


def written(path: Path, commits: int) -> apsw.Connection:
    """A database whose log holds so many commits."""
    db = apsw.Connection(str(path))
    db.pragma("page_size", PAGE)
    db.pragma("journal_mode", "wal")
    db.pragma("wal_autocheckpoint", 0)
    db.execute("create table t (x)")
    for _ in range(commits - 1):
        db.execute("insert into t values (1)")
    return db


def test_the_log_is_beside_the_target_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "x.db"
    link.symlink_to(tmp_path / "elsewhere" / "y.db")
    db = written(link, 3)
    assert log_of(link) == tmp_path.resolve() / "elsewhere" / "y.db-wal"
    assert commits_behind(log_of(link), 0) == 3
    db.close()


@pytest.mark.parametrize(
    ("size", "pages", "logged", "missing"),
    [
        (10 * PAGE, 10, (), 0),
        (8 * PAGE, 10, (), 2),
        (8 * PAGE, 10, (9, 10, 3, 11), 0),
        (8 * PAGE + 1, 10, (10,), 1),
        (12 * PAGE, 10, (), 0),
        (1 << 30, LOCKED, (), 0),  # SQLite leaves that page out.
        (1 << 30, LOCKED + 1, (), 1),
    ],
)
def test_pages_in_neither_the_file_nor_the_log_are_missing(
    size: int, pages: int, logged: tuple[int, ...], missing: int
) -> None:
    assert missing_pages(size, pages, PAGE, logged) == missing


def test_frames_behind_the_last_valid_one_are_blanked(tmp_path: Path) -> None:
    db = written(tmp_path / "x.db", 5)
    log = log_of(tmp_path / "x.db")
    before = list(frames(log, checked=True))
    count = len(before) - 2
    blank_behind(log, count)
    assert list(frames(log, checked=True)) == before[:count]
    db.close()


def test_an_empty_log_is_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "x.db-wal").write_bytes(b"")
    blank_behind(tmp_path / "x.db-wal", 0)
    assert (tmp_path / "x.db-wal").read_bytes() == b""
