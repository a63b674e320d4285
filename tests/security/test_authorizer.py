"""The authorizer: it checks the file once a second, ignores a bad one, and writes the audit."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from pubsub.errors import ConfigurationError
from pubsub.security.access import Operation, Verdict, Why
from pubsub.security.audit import LINES_A_MINUTE_MAX, MINUTE_SECONDS, Audit
from pubsub.security.authorizer import DENIALS_MAX, Authorizer
from pubsub.security.files import AuthorizedFile
from tests.security.keyring import key, pk

ANN = f"client ann {pk('ann')} put=*\n"
BOB = f"client bob {pk('bob')} get=*\n"
NO_RIGHT = Verdict(False, Why.RIGHT, "client ann may not put to t")


class Stage:
    """A gate over files of a test; time moves by `pass_`."""

    def __init__(self, directory: Path, text: str = ANN) -> None:
        self.path, self.audit = directory / "authorized", directory / "audit"
        self.write(text)
        self.now = 1000.0
        self.authorizer = Authorizer(AuthorizedFile(self.path), Audit(self.audit, "proxy p1"), self.now, self.wall)

    @property
    def wall(self) -> float:
        return 1_700_000_000.0 + self.now

    def write(self, text: str) -> None:
        beside = self.path.with_suffix(".new")
        beside.write_text(text)
        beside.replace(self.path)

    def look(self, seconds: float = 1.0) -> bool:
        self.now += seconds
        return self.authorizer.look(self.now, self.wall)

    def knows(self, *names: str) -> bool:
        lines = self.authorizer.access.authorized.lines
        return {line.key for line in lines} == {key(name) for name in names}

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.audit.read_text().splitlines()]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_changed_file_counts_within_a_second_and_only_at_the_next_check(stage: Stage) -> None:
    stage.write(ANN + BOB)
    assert not stage.look(0.9)
    assert stage.knows("ann")
    assert stage.look(0.1)
    assert stage.knows("ann", "bob")
    assert stage.authorizer.counters["reloads"] == 1
    assert not stage.look()
    assert stage.authorizer.counters["reloads"] == 1


def test_an_unchanged_file_is_read_at_once_after_a_hang_up(stage: Stage) -> None:
    stage.authorizer.hang_up()
    assert stage.authorizer.deadline < stage.now
    assert not stage.look(0.0), "nobody came or went"
    assert stage.authorizer.counters["reloads"] == 1
    stage.write(BOB)
    stage.authorizer.hang_up()
    assert stage.look(0.0)
    assert stage.knows("bob")


def test_a_hang_up_during_the_check_is_not_lost(stage: Stage) -> None:
    load = stage.authorizer._source.load

    def struck() -> Any:
        stage.authorizer.hang_up()
        return load()

    stage.authorizer._source.load = struck  # type: ignore[method-assign]
    stage.authorizer.hang_up()
    stage.look(0.0)
    stage.authorizer._source.load = load  # type: ignore[method-assign]
    assert stage.authorizer.deadline < stage.now
    stage.look(0.0)
    assert stage.authorizer.counters["reloads"] == 2


@pytest.mark.parametrize("text", ["client ann nonsense\n", "", ANN + "client bob", None])
def test_an_unusable_file_changes_nothing_until_it_is_usable(stage: Stage, text: str | None) -> None:
    if text is None:
        stage.path.unlink()
    else:
        stage.write(text)
    digest = stage.authorizer.access.authorized.digest
    for _ in range(3):
        assert not stage.look()
    assert stage.knows("ann")
    report = stage.authorizer.report()
    assert (report["counters"]["reload_failed"], report["authorized_digest"]) == (1, digest)
    assert report["problems"] == [stage.authorizer.problem]
    assert str(stage.path) in stage.authorizer.problem
    assert stage.lines()[-1]["what"] == "reload_failed"
    stage.write(ANN + BOB)
    assert stage.look()
    assert stage.authorizer.report()["problems"] == []


def test_the_log_says_each_minute_that_the_file_cannot_be_used(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.write("nonsense\n")
    with caplog.at_level(logging.WARNING, "pubsub.security"):
        for _ in range(125):
            stage.look()
    assert [record.message.split(";")[1] for record in caplog.records] == [" the rules read before stay in force"] * 3
    assert "sk_" not in caplog.text


def test_a_file_that_could_not_be_opened_just_then_is_read_a_moment_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where strangers' connections are all the files that a process may have open, and somebody is revoked."""
    stage.write(BOB)
    opened = os.open

    def full(path: Any, *given: Any, **named: Any) -> int:
        if path == stage.path:
            raise OSError(errno.EMFILE, "Too many open files")
        return opened(path, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        for _ in range(3):
            assert not stage.look()
    assert "Too many open files" in stage.authorizer.problem
    assert stage.authorizer.counters["reload_failed"] == 1
    assert [line["what"] for line in stage.lines()] == ["reload_failed"]
    assert stage.look()
    assert stage.knows("bob")
    assert stage.authorizer.problem == ""


def test_an_unusable_file_at_the_start_is_fatal(tmp_path: Path) -> None:
    for text in ("nonsense\n", ""):
        with pytest.raises(ConfigurationError, match="authorized file"):
            Stage(tmp_path, text)
    with pytest.raises(ConfigurationError, match="No such file"):
        Authorizer(AuthorizedFile(tmp_path / "none"), Audit(None, "proxy p1"), 0.0, 0.0)


def test_the_audit_names_the_added_and_the_removed_lines(stage: Stage) -> None:
    stage.write(BOB)
    stage.look()
    came, went = stage.lines()
    assert (came["what"], came["user"].split("#")[0], came["rights"]) == ("line_came", "client:bob", "get=*")
    assert (went["what"], went["user"].split("#")[0], went["rights"]) == ("line_went", "client:ann", "put=*")
    assert pk("ann") not in stage.audit.read_text()


def test_a_hang_up_opens_the_audit_anew(stage: Stage) -> None:
    stage.authorizer.note("topic_made", stage.wall, topic="t")
    stage.audit.rename(stage.audit.with_suffix(".1"))
    stage.authorizer.hang_up()
    stage.look(0.0)
    stage.authorizer.note("topic_made", stage.wall, topic="u")
    assert [line["topic"] for line in stage.lines()] == ["u"]


def test_a_denial_is_written_once_a_minute_and_counted_each_time(stage: Stage) -> None:
    for _ in range(59):
        stage.authorizer.note_denied("client:ann#1", Operation.PUT, "t", NO_RIGHT, stage.now, stage.wall)
        stage.look()
    assert [line["reason"] for line in stage.lines()] == ["client ann may not put to t"]
    stage.authorizer.note_denied("client:bob#2", Operation.PUT, "t", NO_RIGHT, stage.now, stage.wall)
    assert len(stage.lines()) == 2
    stage.look()
    stage.authorizer.note_denied("client:ann#1", Operation.PUT, "t", NO_RIGHT, stage.now, stage.wall)
    assert len(stage.lines()) == 3
    assert stage.authorizer.counters["denied"] == 61


def test_a_flood_of_denials_of_many_kinds_fills_no_table(stage: Stage) -> None:
    for k in range(DENIALS_MAX + 500):
        stage.authorizer.note_denied(f"client:{k}", Operation.PUT, "t", NO_RIGHT, stage.now, stage.wall)
    assert len(stage.authorizer._denials) == DENIALS_MAX
    assert len(stage.lines()) <= 100
    assert stage.authorizer.counters["denied"] == DENIALS_MAX + 500


def test_an_entry_is_audited_once(stage: Stage) -> None:
    frames = [b"x", b"", b"1.0", b"1", b"clients", b"10.0.0.1", b"", b"CURVE"]
    stage.authorizer.access.zap([*frames, key("ann")])
    stage.authorizer.access.zap([*frames, key("stranger")])
    for _ in range(2):
        stage.authorizer.note_handshakes(stage.wall)
    entered, refused = stage.lines()
    assert (entered["what"], entered["door"], entered["address"]) == ("entered", "clients", "10.0.0.1")
    assert entered["user"].startswith("client:ann#")
    assert (refused["what"], refused["reason"]) == ("refused", "the key is not authorized")
    assert "user" not in refused


def test_an_operation_is_audited_first_or_must_not_be_done(stage: Stage, tmp_path: Path) -> None:
    assert stage.authorizer.note_operation("client:ops#1", stage.wall, action="forget", store="0" * 16)
    assert (stage.lines()[0]["what"], stage.lines()[0]["action"]) == ("operate", "forget")
    authorizer = Authorizer(AuthorizedFile(stage.path), Audit(Path("/dev/full"), "proxy p1"), stage.now, stage.wall)
    assert not authorizer.note_operation("client:ops#1", stage.wall, action="forget")
    assert "audit file /dev/full" in authorizer.report()["problems"][0]


def test_a_report_counts_from_zero(stage: Stage) -> None:
    counters = stage.authorizer.report()["counters"]
    assert counters["denied"] == counters["reloads"] == counters["reload_failed"] == 0
    assert stage.authorizer.report()["authorized_lines"] == 1
    stage.authorizer.close()


def test_the_number_of_omitted_lines_is_written_without_another_event(stage: Stage) -> None:
    for number in range(LINES_A_MINUTE_MAX + 7):
        stage.authorizer.note("subscribe", stage.wall, topic=f"t{number}")
    stage.look(MINUTE_SECONDS + 1)
    last = json.loads(stage.audit.read_text().splitlines()[-1])
    assert (last["what"], last["more"]) == ("subscribe", 7)
