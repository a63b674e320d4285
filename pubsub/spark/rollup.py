"""Messages counted by windows of time: JSON messages, by fields of them, each window written once when it is over.

A window is over when the watermark has passed its end: the highest time seen so far, less how late a message may be.
What comes after that is left out and said. Windows of the calendar (months …) have no fixed length, so a window is
built here, and not by Spark's `window`: the metadata that Spark gives its own windows tells it that these, too, end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery

from pubsub.errors import CallerError
from pubsub.spark.arrow import SCHEMA
from pubsub.spark.pipelines import CLOSED, Place, begin, source
from pubsub.spark.storage import open_storage

CALENDAR: Final = ("week", "month", "quarter", "year")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d{1,9}) ?([smhd])")
_FIELD: Final = re.compile(r"[^.'\[\]\"]+(\.[^.'\[\]\"]+)*")
_TAKEN: Final = ("start", "end", "count", "open")
TIME_SECONDS_MAX: Final = 9 * 10**12
"""A time further from 1970 is none: its window would begin or end where Spark has no time, which ends each run."""

_WATERMARK: Final = "spark.watermarkDelayMs"
"""Metadata by which Spark knows a column that its watermark bounds."""


def duration(text: str, what: str) -> int:
    """Seconds of a text such as 90s, 15m, 1h, 2d.

    Raises:
        CallerError: it is none.
    """
    found = _DURATION.fullmatch(text)
    if not found:
        raise CallerError(f"{what} is {text}; it is a number and s, m, h or d, such as 1h")
    return int(found.group(1)) * _SECONDS[found.group(2)]


@dataclass(frozen=True, kw_only=True)
class Rollup:
    """What is counted.

    Args:
        window: a duration, or one of CALENDAR.
        by: fields of the messages; `a.b` is b within a.
        time: the field that says when; "": when the server took the message.
        late: how much later than the highest time so far a message may come, as a duration.

    Raises:
        CallerError: one of them is not what it must be.
    """

    window: str
    by: tuple[str, ...]
    time: str = ""
    late: str = "1h"

    def __post_init__(self) -> None:
        if self.window not in CALENDAR and not duration(self.window, "the window"):
            raise CallerError("the window has no length")
        duration(self.late, "the watermark")
        for name in (*self.by, *([self.time] if self.time else [])):
            if not _FIELD.fullmatch(name):
                raise CallerError(f"{name} is no name of a field, such as kind or order.kind")
        for name in self.by:
            if name in _TAKEN:
                raise CallerError(f"the field {name} would have the name of a column of the result")
        if len(set(self.by)) < len(self.by):
            raise CallerError("a field is named twice")

    def counted(self, rows: DataFrame) -> DataFrame:
        """Counts of the source's rows: start, end, each field, count, open."""
        text = F.col("value").cast("string")
        at = _moment(_field(text, self.time)) if self.time else F.col("stamp")
        keys = [_field(text, name).alias(f"by{index}") for index, name in enumerate(self.by)]
        timed = rows.select(at.alias("at"), *keys)
        timed = timed.observe("read", F.count_if(F.col("at").isNull()).alias("untimed"))
        timed = timed.withWatermark("at", f"{duration(self.late, 'the watermark')} seconds")
        windowed = timed.where("at is not null").select(self._window(), *(key for key in timed.columns if key != "at"))
        return self._result(windowed.groupBy(*windowed.columns).count(), F.lit(False))

    def _window(self) -> Column:
        at = F.col("at")
        if self.window in CALENDAR:
            length = "3 month" if self.window == "quarter" else f"1 {self.window}"
            start = F.date_trunc(self.window, at)
            end = start + F.expr(f"interval {length}")
        else:
            size = duration(self.window, "the window")
            number = F.floor(F.unix_seconds(at) / size)
            start, end = F.timestamp_seconds(number * size), F.timestamp_seconds((number + 1) * size)
        delay = duration(self.late, "the watermark") * 1000
        return F.struct(start.alias("start"), end.alias("end")).alias("window", metadata={_WATERMARK: delay})

    def _result(self, counts: DataFrame, still_open: Column) -> DataFrame:
        by = [F.col(f"by{index}").alias(name) for index, name in enumerate(self.by)]
        return counts.select("window.start", "window.end", *by, "count", still_open.alias("open"))

    def open_windows(self, spark: SparkSession, checkpoint: str) -> DataFrame | None:
        """The counts of windows that are not over, from the state of a query that has ended; None: it had no batch."""
        if not open_storage(spark, f"{checkpoint}/commits").names():
            return None
        state = spark.read.format("statestore").load(checkpoint)
        return self._result(state.select("key.*", "value.count"), F.lit(True))

    def schema(self) -> str:
        """Of the result."""
        return ", ".join(
            ("start timestamp", "end timestamp", *(f"`{n}` string" for n in self.by), "count bigint", "open boolean")
        )


def _field(text: Column, name: str) -> Column:
    return F.get_json_object(text, "$" + "".join(f"['{part}']" for part in name.split(".")))


def _moment(text: Column) -> Column:
    """A time that a message has: a text that is a date, or a number since 1970, whose unit its size tells."""
    number = text.try_cast("decimal(38,9)")
    size = F.abs(number)
    micros = number * F.when(size < 10**11, 10**6).when(size < 10**14, 10**3).when(size < 10**17, 1)
    at = F.coalesce(F.timestamp_micros(micros.try_cast("bigint")), text.try_cast("timestamp"))
    return F.when(F.abs(F.unix_seconds(at)) <= TIME_SECONDS_MAX, at)


def as_messages(counts: DataFrame) -> DataFrame:
    """Counts as JSON messages."""
    form = "yyyy-MM-dd'T'HH:mm:ss'Z'"
    times = {name: F.date_format(name, form) for name in ("start", "end")}
    whole = F.struct(*(F.col(f"`{name}`") for name in counts.columns))
    return counts.withColumns(times).select(F.to_json(whole, {"ignoreNullFields": "false"}).alias("value"))


def to_directory(
    spark: SparkSession, place: Place, topic: str, to: str, what: Rollup, *, name: str, checkpoint: str, once: bool,
    seconds: float, records: int,
) -> StreamingQuery:  # fmt: skip
    """Start a rollup whose windows go to Parquet files in `to/closed`."""
    counts = what.counted(source(spark, place, [topic], name, records))
    writer = counts.writeStream.format("parquet").option("path", f"{to}/{CLOSED}")
    return begin(writer, name, checkpoint, once=once, seconds=seconds)


def to_topic(
    spark: SparkSession, place: Place, topic: str, to: str, what: Rollup, *, name: str, checkpoint: str, once: bool,
    seconds: float, records: int,
) -> StreamingQuery:  # fmt: skip
    """Start a rollup whose windows go to a topic as JSON messages."""
    counts = as_messages(what.counted(source(spark, place, [topic], name, records)))
    writer = counts.writeStream.format("pubsub").options(topic=to, sink="rollup", **place.options)
    return begin(writer, name, checkpoint, once=once, seconds=seconds)


def write_open(counts: DataFrame, directory: str) -> None:
    """Put the windows that are not over into `directory/open`, in place of those of an earlier run."""
    counts.coalesce(1).write.mode("overwrite").parquet(f"{directory}/open")


def put_open(counts: DataFrame, place: Place, to: str, query: str, checkpoint: str) -> None:
    """Put the windows that are not over to the topic; once for each state of the query."""
    spark = counts.sparkSession
    batch = max(int(name) for name in open_storage(spark, f"{checkpoint}/commits").names() if name.isdigit())
    options = {"topic": to, "sink": f"open-{query.replace('-', '')}", "batchId": str(batch)} | place.options
    as_messages(counts).write.format("pubsub").options(**options).mode("append").save()


def closed_in_topic(spark: SparkSession, place: Place, to: str, what: Rollup, name: str) -> DataFrame:
    """The windows that a topic has, since it was told to keep them."""
    rows = spark.read.schema(SCHEMA).format("pubsub").options(subscribe=to, subscription=name, **place.options).load()
    parsed = rows.select(F.from_json(F.col("value").cast("string"), what.schema()).alias("row")).select("row.*")
    return parsed.where("not open")


def series(counts: DataFrame, by: Sequence[str]) -> list[tuple[datetime, str, int]]:
    """Counts for a picture: start, the fields' values, count."""
    label = F.concat_ws(" ", *(F.coalesce(F.col(f"`{name}`"), F.lit("-")) for name in by)) if by else F.lit("all")
    picked = counts.select(F.unix_seconds("start").alias("start"), label.alias("label"), "count")
    rows = picked.orderBy("start", "label").collect()
    return [(datetime.fromtimestamp(row["start"], UTC), row["label"], row["count"]) for row in rows]
