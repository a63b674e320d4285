"""The audit file: its content, the share that strangers can cause, and the handling of a failing disk."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pubsub.errors import ConfigurationError
from pubsub.security.audit import LINES_A_MINUTE_MAX, Audit


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@contextmanager
def cut_short(size: int) -> Iterator[None]:
    """No file gets larger than so many bytes."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_line_has_its_time_process_and_facts_and_omits_unknown_ones(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit", "proxy p1")
    audit.write(1_700_000_000.1234, "entered", user="client:ann#00000000", address="10.0.0.1", reason="", topic=None)
    audit.close()
    assert lines(tmp_path / "audit") == [
        {"time": 1_700_000_000.123, "process": "proxy p1", "what": "entered", "user": "client:ann#00000000",
         "address": "10.0.0.1"}
    ]  # fmt: skip


def test_earlier_lines_stay_and_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    for _ in range(2):
        audit = Audit(tmp_path / "audit", "proxy p1")
        audit.write(1.0, "reload")
        audit.close()
    assert len(lines(tmp_path / "audit")) == 2
    assert stat.S_IMODE((tmp_path / "audit").stat().st_mode) == 0o600


def test_a_flood_of_one_kind_is_a_number_and_leaves_room_for_other_kinds(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit", "proxy p1")
    for k in range(LINES_A_MINUTE_MAX + 50):
        audit.write(100.0 + k / 100, "refused", key=f"{k:08x}")
    audit.write(130.0, "entered")
    audit.tick(159.0)
    assert len(lines(tmp_path / "audit")) == LINES_A_MINUTE_MAX + 1
    audit.tick(161.0)
    assert lines(tmp_path / "audit")[-1] == {"time": 161.0, "process": "proxy p1", "what": "refused", "more": 50}
    audit.write(162.0, "refused", key="after")
    assert lines(tmp_path / "audit")[-1]["key"] == "after"


def test_a_clock_that_goes_back_does_not_silence_the_audit(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit", "proxy p1")
    for wall in (1000.0, 10.0):
        for _ in range(LINES_A_MINUTE_MAX):
            audit.write(wall, "refused")
    assert len(lines(tmp_path / "audit")) == 2 * LINES_A_MINUTE_MAX


def test_required_lines_are_never_omitted(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit", "proxy p1")
    assert all(audit.must_write(1.0, "operate", action="forget") for _ in range(LINES_A_MINUTE_MAX + 10))
    assert len(lines(tmp_path / "audit")) == LINES_A_MINUTE_MAX + 10


def test_a_file_that_was_renamed_to_be_kept_is_begun_anew(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit", "proxy p1")
    audit.write(1.0, "entered")
    (tmp_path / "audit").rename(tmp_path / "audit.1")
    audit.reopen()
    audit.write(2.0, "refused")
    assert [line["what"] for line in lines(tmp_path / "audit.1")] == ["entered"]
    assert [line["what"] for line in lines(tmp_path / "audit")] == ["refused"]


def test_an_unwritable_audit_at_the_start_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"audit file .*/none/audit: No such file or directory"):
        Audit(tmp_path / "none" / "audit", "proxy p1")


def test_an_unwritable_audit_reports_so_until_it_is_writable(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    audit = Audit(folder / "audit", "proxy p1")
    (folder / "audit").unlink()
    folder.rmdir()
    audit.reopen()
    assert not audit.must_write(1.0, "operate")
    assert "No such file or directory" in audit.problem
    audit.write(1.0, "entered")  # And nothing is raised.
    folder.mkdir()
    assert audit.must_write(2.0, "operate")
    assert audit.problem == ""
    assert len(lines(folder / "audit")) == 1


def test_a_full_disk_is_a_problem_and_not_a_line() -> None:
    audit = Audit(Path("/dev/full"), "proxy p1")
    assert not audit.must_write(1.0, "operate")
    assert "No space left on device" in audit.problem


def test_a_line_that_the_disk_cut_short_does_not_spoil_the_next(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit", "proxy p1")
    assert audit.must_write(1.0, "operate", action="move")
    with cut_short((tmp_path / "audit").stat().st_size + 20):
        assert not audit.must_write(2.0, "operate", action="forget")
    assert audit.must_write(3.0, "operate", action="drain")
    first, cut, last = (tmp_path / "audit").read_text().splitlines()
    assert (json.loads(first)["action"], len(cut), json.loads(last)["action"]) == ("move", 20, "drain")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    os.symlink(tmp_path / "other", tmp_path / "audit")
    with pytest.raises(ConfigurationError, match="audit file"):
        Audit(tmp_path / "audit", "proxy p1")
    assert not (tmp_path / "other").exists()


def test_a_line_cannot_look_like_two(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit", "proxy p1")
    audit.write(1.0, "denied", topic='x"}\n{"what": "entered"', user="\u2028\x00")
    assert [line["what"] for line in lines(tmp_path / "audit")] == ["denied"]


def test_an_audit_without_a_file_writes_nothing_and_misses_nothing() -> None:
    audit = Audit(None, "proxy p1")
    audit.write(1.0, "entered")
    audit.reopen()
    assert audit.must_write(1.0, "operate")
    audit.close()


def test_a_line_that_an_earlier_process_could_write_in_part_only_spoils_no_other_one(tmp_path: Path) -> None:
    """As where the disk was full, and the process was started again once there was room."""
    path = tmp_path / "audit"
    path.write_text('{"time": 1.0, "process": "proxy p1", "wh')
    path.chmod(0o600)
    audit = Audit(path, "proxy p1")
    assert audit.must_write(2.0, "operate", action="forget")
    audit.close()
    torn, whole = path.read_text().splitlines()
    assert torn.endswith('"wh')
    assert json.loads(whole)["action"] == "forget"


def test_a_new_file_does_not_begin_with_the_rest_of_an_incomplete_line(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    audit = Audit(path, "proxy p1")
    with cut_short(20):
        assert not audit.must_write(1.0, "operate", action="forget")
    path.rename(tmp_path / "audit.1")
    audit.reopen()
    assert audit.must_write(2.0, "operate", action="drain")
    audit.close()
    assert [line["action"] for line in lines(path)] == ["drain"]
