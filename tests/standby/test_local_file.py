"""The local file of one member, beside its store."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.errors import StoreDamaged
from pubsub.server.standby.disk.local_file import Local, LocalFile
from tests.standby.cast import A, B


def test_a_directory_without_the_file_belongs_to_no_member(tmp_path: Path) -> None:
    assert LocalFile(tmp_path).local is None


def test_a_member_keeps_its_first_id(tmp_path: Path) -> None:
    assert LocalFile(tmp_path).make(A) == Local(A)
    assert LocalFile(tmp_path).make(B) == Local(A)


def test_kept_facts_are_there_at_the_next_start(tmp_path: Path) -> None:
    file = LocalFile(tmp_path)
    file.make(A)
    file.keep(registered=True, port=4711)
    file.keep(lost=True)
    assert file.local == LocalFile(tmp_path).local == Local(A, registered=True, lost=True, port=4711)


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    LocalFile(tmp_path).make(A)
    (tmp_path / "local.new").write_bytes(b"{")
    assert LocalFile(tmp_path).local == Local(A)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"member": "x", "registered": true, "lost": false, "port": 0}',
        b'{"member": "aaaaaaaaaaaaaaaa", "registered": 1, "lost": false, "port": 0}',
    ],
)
def test_a_damaged_file_is_not_mistaken_for_another_member(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "local").write_bytes(data)
    with pytest.raises(StoreDamaged):
        LocalFile(tmp_path)
