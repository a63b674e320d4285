"""Counts by windows of time, each against a plain Python count."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pubsub.cli import main
from pubsub.errors import CallerError
from pubsub.spark import picture
from pubsub.spark.rollup import Rollup
from tests.spark.broker import Broker
from tests.spark.test_pipelines import Run, run  # noqa: F401 - a fixture

pytestmark = pytest.mark.spark

HOUR = 3600
BEGIN = 1_700_000_000


def events(first: int, stop: int) -> list[dict[str, Any]]:
    """One each ten minutes, of three kinds; a bit out of order."""
    return [
        {"at": BEGIN + number * 600 - (number % 7) * 900, "kind": "xyz"[number % 3], "n": number}
        for number in range(first, stop)
    ]


def as_json(rows: Iterable[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def hours(rows: Iterable[dict[str, Any]]) -> Counter[tuple[int, str]]:
    return Counter((row["at"] // HOUR * HOUR, row["kind"]) for row in rows)


def in_files(session: Any, *directories: Path) -> Counter[tuple[int, str]]:
    """The counts in directories; a window must not be there twice."""
    found: Counter[tuple[int, str]] = Counter()
    for directory in directories:
        for row in session.read.parquet(str(directory)).selectExpr("unix_seconds(start) s", "kind", "count").collect():
            assert (row.s, row.kind) not in found
            found[row.s, row.kind] = row["count"]
    return found


def test_closed_and_open_windows_together_equal_a_count_in_python(
    broker: Broker,
    run: Run,  # noqa: F811
    session: Any,
    tmp_path: Path,
) -> None:
    to, drawn = tmp_path / "counts", tmp_path / "counts.png"
    rows = events(0, 600)
    words = ("rollup", "t", "--window", "1h", "--by", "kind", "--time", "at", "--watermark", "2h", "--to", str(to))
    for first, stop in ((0, 400), (400, 600)):
        broker.put("t", as_json(rows[first:stop]))
        facts = run(*words, "--once", "--batch", "200", "--plot", str(drawn))
        assert (facts["messages"], facts["untimed"], facts["late"]) == (stop - first, 0, 0)
        assert in_files(session, to / "closed", to / "open") == hours(rows[:stop])
        latest = max(row["at"] for row in rows[:stop]) - 2 * HOUR
        ends = [start + HOUR for start, _ in in_files(session, to / "open")]
        assert ends
        assert min(ends) > latest
        assert facts["open"] == len(ends)
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_counts_come_to_a_topic_once_and_open_windows_when_asked_for(
    broker: Broker,
    run: Run,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    drawn: list[list[tuple[datetime, str, int]]] = []
    monkeypatch.setattr(picture, "draw", lambda rows, title, file: drawn.append(rows))
    rows = events(0, 300)
    words = ("rollup", "t", "--window", "1h", "--by", "kind", "--time", "at", "--to", "counts", "--once")
    words += ("--plot", str(tmp_path / "x.png"), "--open", "--watermark", "3h")
    for first, stop, times in ((0, 200, 2), (200, 300, 1)):
        broker.put("t", as_json(rows[first:stop]))
        for _ in range(times):  # Run again with nothing new, it puts nothing.
            run(*words)
        found = [json.loads(value) for value in broker.records("counts")]
        closed = [(row["start"], row["kind"]) for row in found if not row["open"]]
        assert len(set(closed)) == len(closed)
        last = {(row["start"], row["kind"]): row["count"] for row in found}
        assert last == {(iso(start), kind): n for (start, kind), n in hours(rows[:stop]).items()}
        assert {(start, label): n for start, label, n in drawn[-1]} == {
            (datetime.fromtimestamp(start, UTC), kind): n for (start, kind), n in hours(rows[:stop]).items()
        }
    marked = [row["start"] for row in found if row["open"]]
    assert len(marked) == len({(row["start"], row["kind"], row["count"]) for row in found if row["open"]})
    assert (tmp_path / "data").exists()


def iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_uncountable_messages_are_reported(
    broker: Broker,
    run: Run,  # noqa: F811
    session: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    to = tmp_path / "counts"
    words = ("rollup", "t", "--window", "1h", "--by", "kind", "--time", "at", "--to", str(to), "--once")
    good = {"at": BEGIN, "kind": "x"}
    broker.put("t", [b"no json", b"{}", b"\xff\xfe", *as_json([good, {"kind": "x"}, {"at": "when?"}, {"at": BEGIN}])])
    assert run(*words)["untimed"] == 5
    assert in_files(session, to / "open") == {(BEGIN // HOUR * HOUR, "x"): 1, (BEGIN // HOUR * HOUR, None): 1}
    broker.put("t", as_json([{"at": BEGIN + 10 * HOUR, "kind": "x"}]))
    run(*words)
    broker.put("t", as_json([good]))
    facts = run(*words)
    assert (facts["messages"], facts["late"]) == (1, 1)
    assert in_files(session, to / "closed")[BEGIN // HOUR * HOUR, "x"] == 1
    assert main(["pipeline", *words, "--window", "2h", "--proxy", broker.address]) == 8
    assert "belongs to a pipeline with window 1h, not 2h" in capsys.readouterr().err


def windows(session: Any, what: Rollup, rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], int]:
    """The windows of some messages, without a broker."""
    made = session.createDataFrame([(bytearray(value), 0) for value in as_json(rows)], "value binary, x int")
    made = made.selectExpr("value", "timestamp'2020-01-01' stamp")
    counted = what.counted(made).selectExpr("string(start) s", "string(end) e", "count").collect()
    return {(row.s, row.e): row["count"] for row in counted}


def test_windows_follow_the_calendar_and_times_come_in_every_form(session: Any) -> None:
    moment = datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC)
    number = int(moment.timestamp())
    forms = [number, number * 1000, number * 1_000_000 + 5, str(number), f"{number}.25", "2024-02-29T23:59:59Z"]
    rows = [{"a": {"at": form}} for form in forms]
    for window, start, end in (
        ("week", "2024-02-26 00:00:00", "2024-03-04 00:00:00"),
        ("month", "2024-02-01 00:00:00", "2024-03-01 00:00:00"),
        ("quarter", "2024-01-01 00:00:00", "2024-04-01 00:00:00"),
        ("year", "2024-01-01 00:00:00", "2025-01-01 00:00:00"),
        ("90m", "2024-02-29 22:30:00", "2024-03-01 00:00:00"),
    ):
        assert windows(session, Rollup(window=window, by=(), time="a.at"), rows) == {(start, end): len(rows)}
    before = datetime(1969, 12, 31, 23, 30, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    found = windows(session, Rollup(window="1h", by=(), time="at"), [{"at": before / timedelta(seconds=1)}])
    assert found == {("1969-12-31 23:00:00", "1970-01-01 00:00:00"): 1}
    assert windows(session, Rollup(window="1d", by=()), [{}]) == {("2020-01-01 00:00:00", "2020-01-02 00:00:00"): 1}


@pytest.mark.parametrize("window", ["1h", "month", "year"])
def test_a_time_beyond_the_range_is_null_and_ends_no_query(session: Any, window: str) -> None:
    rows = [{"at": at} for at in ("+294247-01-10T04:00:54Z", "-290308-12-21T19:59:06Z", "2024-01-01T00:30:00Z")]
    ((start, _),) = windows(session, Rollup(window=window, by=(), time="at"), rows)
    assert start == "2024-01-01 00:00:00"


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"window": "1x"}, "the window is 1x"),
        ({"window": "0s"}, "no length"),
        ({"late": "soon"}, "the watermark is soon"),
        ({"by": ("a..b",)}, "not the name of a field"),
        ({"by": ("count",)}, "name of a result column"),
        ({"by": ("a", "a")}, "named twice"),
        ({"time": "a'b"}, "not the name of a field"),
    ],
)
def test_an_impossible_rollup_is_refused(facts: dict[str, Any], said: str) -> None:
    with pytest.raises(CallerError, match=said):
        Rollup(**({"window": "1h", "by": ()} | facts))


def test_a_picture_shows_the_largest_and_all_others_together() -> None:
    times = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2)]
    rows = [(time, f"k{number}", number + 1) for time in times for number in range(picture.LINES_MAX + 3)]
    found = picture.lines([*rows, (times[1], "late", 100)])
    assert list(found) == ["late", *(f"k{number}" for number in range(12, 3, -1)), picture.OTHERS]
    assert found["late"] == {times[0]: 0, times[1]: 100}
    assert found[picture.OTHERS][times[0]] == sum(range(1, 5))
    assert sum(sum(counts.values()) for counts in found.values()) == sum(row[2] for row in rows) + 100
