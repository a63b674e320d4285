"""Counts JSON messages by windows of time and by fields; each window is written once, after its end (`windows`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.streaming.query import StreamingQuery

from pubsub.errors import CallerError
from pubsub.spark.arrow import SCHEMA, schema_of
from pubsub.spark.durations import check_late, check_window
from pubsub.spark.pipelines import CLOSED, Place, begin, source
from pubsub.spark.storage import open_storage
from pubsub.spark.windows import in_windows

_FIELD: Final = re.compile(r"[^.'\[\]\"]+(\.[^.'\[\]\"]+)*")
_TAKEN: Final = ("start", "end", "count", "open")
READ: Final = schema_of(("stamp", "value"))
"""Columns of the source that the counts are made of."""

TIME_SECONDS_MAX: Final = 9 * 10**12
"""A time further from 1970 counts as no time: its window would lie outside Spark's range and end each run with an
error.
"""


@dataclass(frozen=True, kw_only=True)
class Rollup:
    """The definition of the counts.

    Args:
        window: a duration, or one of CALENDAR.
        by: fields of the messages; `a.b` is field b in a.
        time: field with the time; "" for the server's timestamp.
        late: how much later than the highest time so far a message may come, as a duration.

    Raises:
        CallerError: a value is not valid.
    """

    window: str
    by: tuple[str, ...]
    time: str = ""
    late: str = "1h"

    def __post_init__(self) -> None:
        check_window(self.window)
        check_late(self.late)
        for name in (*self.by, *([self.time] if self.time else [])):
            if not _FIELD.fullmatch(name):
                raise CallerError(f"{name} is not the name of a field, such as kind or order.kind")
        for name in self.by:
            if name in _TAKEN:
                raise CallerError(f"field {name} has the name of a result column; rename it in the messages")
        if len(set(self.by)) < len(self.by):
            raise CallerError("a field is named twice")

    def counted(self, rows: DataFrame) -> DataFrame:
        """Return the counts of the source's rows: start, end, each field, count, open."""
        text = F.col("value").cast("string")
        at = _moment(_field(text, self.time)) if self.time else F.col("stamp")
        keys = [_field(text, name).alias(f"by{index}") for index, name in enumerate(self.by)]
        windowed = in_windows(rows.select(at.alias("at"), *keys), "at", self.window, self.late)
        groups = ("window", *(f"by{index}" for index in range(len(keys))))
        return self._result(windowed.groupBy(*groups).count(), F.lit(False))

    def _result(self, counts: DataFrame, still_open: Column) -> DataFrame:
        by = [F.col(f"by{index}").alias(name) for index, name in enumerate(self.by)]
        return counts.select("window.start", "window.end", *by, "count", still_open.alias("open"))

    def open_windows(self, spark: SparkSession, checkpoint: str) -> DataFrame | None:
        """Return the counts of windows that have not ended, from a stopped query's state; None if it had no batch."""
        if not open_storage(spark, f"{checkpoint}/commits").names():
            return None
        state = spark.read.format("statestore").load(checkpoint)
        return self._result(state.select("key.*", "value.count"), F.lit(True))

    def schema(self) -> str:
        """Return the schema of the result."""
        return ", ".join(
            ("start timestamp", "end timestamp", *(f"`{n}` string" for n in self.by), "count bigint", "open boolean")
        )


def _field(text: Column, name: str) -> Column:
    return F.get_json_object(text, "$" + "".join(f"['{part}']" for part in name.split(".")))


def _moment(text: Column) -> Column:
    """Return the time of a message: a date in text, or a number since 1970. The number's size tells its unit."""
    number = text.try_cast("decimal(38,9)")
    size = F.abs(number)
    micros = number * F.when(size < 10**11, 10**6).when(size < 10**14, 10**3).when(size < 10**17, 1)
    at = F.coalesce(F.timestamp_micros(micros.try_cast("bigint")), text.try_cast("timestamp"))
    return F.when(F.abs(F.unix_seconds(at)) <= TIME_SECONDS_MAX, at)


def as_messages(counts: DataFrame) -> DataFrame:
    """Return the counts as JSON messages."""
    form = "yyyy-MM-dd'T'HH:mm:ss'Z'"
    times = {name: F.date_format(name, form) for name in ("start", "end")}
    whole = F.struct(*(F.col(f"`{name}`") for name in counts.columns))
    return counts.withColumns(times).select(F.to_json(whole, {"ignoreNullFields": "false"}).alias("value"))


def to_directory(
    spark: SparkSession, place: Place, topic: str, to: str, what: Rollup, *, name: str, checkpoint: str, once: bool,
    seconds: float, records: int,
) -> StreamingQuery:  # fmt: skip
    """Start a rollup that writes its windows to Parquet files in `to/closed`."""
    counts = what.counted(source(spark, place, [topic], name, records, READ, (to, checkpoint)))
    writer = counts.writeStream.format("parquet").option("path", f"{to}/{CLOSED}")
    return begin(writer, name, checkpoint, once=once, seconds=seconds)


def to_topic(
    spark: SparkSession, place: Place, topic: str, to: str, what: Rollup, *, name: str, checkpoint: str, once: bool,
    seconds: float, records: int,
) -> StreamingQuery:  # fmt: skip
    """Start a rollup that puts its windows to a topic as JSON messages."""
    counts = as_messages(what.counted(source(spark, place, [topic], name, records, READ, (checkpoint,))))
    writer = counts.writeStream.format("pubsub").options(topic=to, sink="rollup", **place.options)
    return begin(writer, name, checkpoint, once=once, seconds=seconds)


def write_open(counts: DataFrame, directory: str) -> None:
    """Write the windows that have not ended to `directory/open`, replacing those of an earlier run."""
    counts.coalesce(1).write.mode("overwrite").parquet(f"{directory}/open")


def put_open(counts: DataFrame, place: Place, to: str, query: str, checkpoint: str) -> None:
    """Put the windows that have not ended to the topic; once for each state of the query."""
    spark = counts.sparkSession
    batch = max(int(name) for name in open_storage(spark, f"{checkpoint}/commits").names() if name.isdigit())
    options = {"topic": to, "sink": f"open-{query.replace('-', '')}", "batchId": str(batch)} | place.options
    as_messages(counts).write.format("pubsub").options(**options).mode("append").save()


def closed_in_topic(spark: SparkSession, place: Place, to: str, what: Rollup, name: str) -> DataFrame:
    """Return the ended windows in a topic, from the begin of the subscription that keeps them."""
    rows = spark.read.schema(SCHEMA).format("pubsub").options(subscribe=to, subscription=name, **place.options).load()
    parsed = rows.select(F.from_json(F.col("value").cast("string"), what.schema()).alias("row")).select("row.*")
    return parsed.where("not open")


def series(counts: DataFrame, by: Sequence[str]) -> list[tuple[datetime, str, int]]:
    """Return counts for a picture: start, values of the fields, count."""
    label = F.concat_ws(" ", *(F.coalesce(F.col(f"`{name}`"), F.lit("-")) for name in by)) if by else F.lit("all")
    picked = counts.select(F.unix_seconds("start").alias("start"), label.alias("label"), "count")
    rows = picked.orderBy("start", "label").collect()
    return [(datetime.fromtimestamp(row["start"], UTC), row["label"], row["count"]) for row in rows]
