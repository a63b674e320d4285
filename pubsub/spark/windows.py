"""Windows of time in a stream, each written once, after it has ended.

A window has ended when the watermark has passed its end. The watermark is the highest time so far, minus the time that
a message may be late. Later messages are left out and counted. Calendar windows (months …) have no fixed length, so
this module builds the windows instead of Spark's `window`. The metadata of Spark's own windows tells Spark that these
end too.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from pubsub.spark.durations import CALENDAR, duration

_WATERMARK: Final = "spark.watermarkDelayMs"
"""Metadata that marks a column with a watermark for Spark."""


def in_windows(rows: DataFrame, at: str, length: str, late: str) -> DataFrame:
    """Return the rows that have a time, with the column `window`; the others are counted in `untimed`.

    Args:
        at: the column of the time.
        length, late: see `window_of`.
    """
    rows = rows.observe("timed", F.count_if(F.col(at).isNull()).alias("untimed"))
    timed = rows.withWatermark(at, f"{duration(late, 'the watermark')} seconds").where(F.col(at).isNotNull())
    return timed.withColumn("window", window_of(F.col(at), length, late))


def window_of(at: Column, length: str, late: str) -> Column:
    """Return the window of a time as the column `window` of start and end.

    Args:
        length: a duration, or one of CALENDAR.
        late: the delay of the watermark on `at`.
    """
    if length in CALENDAR:
        start = F.date_trunc(length, at)
        end = start + F.expr(f"interval {'3 month' if length == 'quarter' else f'1 {length}'}")
    else:
        size = duration(length, "the window")
        number = F.floor(F.unix_seconds(at) / size)
        start, end = F.timestamp_seconds(number * size), F.timestamp_seconds((number + 1) * size)
    delay = duration(late, "the watermark") * 1000
    return F.struct(start.alias("start"), end.alias("end")).alias("window", metadata={_WATERMARK: delay})
