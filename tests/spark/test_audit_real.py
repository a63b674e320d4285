"""The audit of records by clients of a real service, by its command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pubsub import embedded
from pubsub.cli import main

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What clients of a real service recorded."""
    record = tmp_path_factory.mktemp("real") / "record"
    with embedded() as cluster:
        with (
            cluster.client("pub", recorder=record) as pub,
            cluster.client("one", recorder=record) as one,
            cluster.client("two", recorder=record) as two,
        ):
            one.subscribe("t")
            two.subscribe("t")
            pub.put_many("t", [b"x"] * 500)
            while one.get_many("t", timeout=0.5):
                continue
            for _ in two.messages("t", timeout=0.5):
                continue
            with pub.publisher("t", records=7) as publisher:
                for _ in range(100):
                    publisher.put(b"y")
            while one.process("t", lambda message, transaction: None, timeout=0.5):
                continue
            two.unsubscribe("t")
            pub.put("t", b"z")
        with cluster.client("one", recorder=record) as one:
            assert one.get("t", timeout=5) is not None
            assert one.get("t", timeout=0.5) is None
    return record


@pytest.mark.nightly
def test_a_real_record_is_clean_and_the_command_ends_with_0(
    session: Any, real: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "audit", str(real), "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert (counts["put"], counts["acknowledged"], counts["delivered"]) == (601, 601, 1101)
    assert (counts["not_due"], counts["unrecorded"], counts["sessions"]) == (0, 0, 4)


def test_lines_removed_from_a_real_record_are_found_and_the_command_ends_with_1(
    session: Any, real: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.loads(line) for line in real.read_text().splitlines()]
    begun = [line for line in lines if line.get("result") == "begun"]
    gone = next(line for line in lines if line["kind"] == "delivery" and line["client"] == "one")
    kept = [line for line in lines if line not in (gone, begun[-1])]
    kept = [line for line in kept if not (line["kind"] == "put" and line["first"] == begun[-1]["first"])]
    kept = [line for line in kept if line["kind"] not in {"put_before", "taken_before"}]
    (tmp_path / "record").write_text("".join([json.dumps(line) + "\n" for line in kept]))
    assert main(["pipeline", "audit", str(tmp_path / "record"), "--drained"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == f"{gone['count'] + 1:,} flaws"
    assert sum([line.split()[:3] == ["lost", "one", "t"] for line in said]) == gone["count"]
    assert sum([line.split()[:3] == ["unexplained", "one", "t"] for line in said]) == 1


def test_a_missing_record_is_bad_input(session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "audit", str(tmp_path / "none")]) == 2
    assert "there is no such record" in capsys.readouterr().err
