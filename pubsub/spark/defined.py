"""Builds the query of a pipeline's file: rows of the source, fields of JSON, columns, windows, and the target.

Each expression of the file is analysed by itself, so that an error names its key. `check` does that on no rows, before
anything is started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pubsub.errors import PubsubError
from pubsub.spark.archive import writer
from pubsub.spark.arrow import COLUMNS, HEADED_SCHEMA, SCHEMA, schema_of
from pubsub.spark.pipeline_file.definition import (
    FAIL,
    MESSAGE,
    RAW,
    Definition,
    Parse,
    PipelineFileRefused,
    Window,
)
from pubsub.spark.pipeline_file.tables import Problems
from pubsub.spark.pipelines import Place
from pubsub.spark.session import cause
from pubsub.spark.windows import in_windows

SINK: Final = "pipeline"
AS_PUT: Final = schema_of(("value", "key", "headers"))
"""Columns of the source that make a message again."""

_AT: Final = "__at"
_FIELDS: Final = "__fields"
_CORRUPT: Final = "__unparsed"
_TIME_FORMAT: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
_TIMES: Final = ("timestamp", "timestamp_ntz", "date")
_PARTITIONS: Final = ("string", "date", "boolean", "int", "bigint", "smallint", "tinyint")
"""Types of columns that can be partitions: their text in a path is certain."""


class Unparsed(PubsubError):
    """A message does not have the fields that the pipeline's file names; the text is the message's place."""


def check(spark: SparkSession, made: Definition) -> Problems:
    """Analyse a definition on no rows; return its problems."""
    problems = Problems()
    rows = spark.createDataFrame([], HEADED_SCHEMA if made.headers else SCHEMA)
    found = result(rows, made, problems)
    kinds = dict(found.dtypes)
    for index, name in enumerate(made.target.partition_by):
        if name in kinds and kinds[name] not in _PARTITIONS:
            problems.add(
                f"target.partition_by[{index}]",
                f"{name} is {kinds[name]}; partition by a text, a date or a whole number, such as date({name})",
            )
    return problems


def check_all(spark: SparkSession, made: Definition, file: str) -> None:
    """Check a definition as `check` does.

    Raises:
        PipelineFileRefused: it has problems.
    """
    problems = check(spark, made)
    if problems:
        raise PipelineFileRefused(file, tuple(problems))


def columns_read(made: Definition) -> str:
    """Return the schema of the columns to read. A column whose name occurs in an expression is one of them."""
    if not (made.parse or made.columns):
        return HEADED_SCHEMA if made.headers else SCHEMA
    text = " ".join((made.where, *made.columns.values())).lower()
    every = re.search(rf"\*|identifier|\b{MESSAGE}\b(?!\.\w)", text)  # `identifier` takes a name from any text.
    needed = {"stamp"}  # The date is made of it.
    if made.parse is not None:
        needed |= {"value", "topic", "message_id"} if made.parse.unparsed == FAIL else {"value"}
    names = [*(name for name in COLUMNS if name != "timestamp"), *(["headers"] if made.headers else [])]
    return schema_of([name for name in names if every or name in needed or name in text])


def result(rows: DataFrame, made: Definition, problems: Problems) -> DataFrame:
    """Return the rows of the target."""
    found = rows.withColumn("date", F.date_format("stamp", "yyyy-MM-dd"))
    found = found.select(F.struct(*found.columns).alias(MESSAGE), *found.columns)
    if made.parse is not None:
        found = parsed(found, made.parse)
    found = _where(found, made, problems)
    columns = _columns(found, made, problems)
    if made.window is None:
        return found.select(*columns)
    at = F.col(f"{MESSAGE}.stamp").alias(_AT)
    return _windowed(found.select(at, *columns), made.window, problems)


def parsed(rows: DataFrame, parse: Parse) -> DataFrame:
    """Return `message` and the fields of messages that have them. The others end the query, or are left out."""
    bad, fields = _fields(rows, parse)
    if parse.unparsed == FAIL:
        # `failure` looks for this form in lines of their own. The query's plan, which has these literals, is not one.
        path = (F.lit(f"\n{Unparsed.__module__}.{Unparsed.__qualname__}"), F.lit(": "))
        place = F.concat(*path, f"{MESSAGE}.topic", F.lit(": message "), f"{MESSAGE}.message_id")
        said = (
            ' does not have the fields of parse.fields; set parse.unparsed = "drop" or "dead-topic", or correct them\n'
        )
        raised = F.raise_error(F.concat(place, F.lit(said))).cast("boolean")
        good = F.when(F.col("bad"), raised).otherwise(F.lit(True))
    else:
        good = ~F.col("bad")
    read = rows.select(MESSAGE, bad.alias("bad"), fields.alias(_FIELDS))
    read = read.observe("parsed", F.count_if("bad").alias("unparsed"))
    return read.where(good).select(MESSAGE, *(F.col(f"{_FIELDS}.{name}").alias(name) for name in parse.fields))


def _fields(rows: DataFrame, parse: Parse) -> tuple[Column, Column]:
    """Return whether a row lacks the fields, and the fields."""
    schema = ", ".join((*(f"`{name}` {kind}" for name, kind in parse.fields.items()), f"`{_CORRUPT}` string"))
    text = F.col("value").cast("string")
    fields = F.from_json(text, schema, {"columnNameOfCorruptRecord": _CORRUPT})
    # Spark takes the first object of a list, and the text before a second one.
    bad = fields.isNull() | fields[_CORRUPT].isNotNull() | ~F.coalesce(text.rlike(r"^\s*\{"), F.lit(False))
    for name in parse.required:
        bad = bad | fields[name].isNull()
    return bad, fields


def unparsed(rows: DataFrame, parse: Parse) -> DataFrame:
    """Return the messages without the fields, as they are."""
    bad, _ = _fields(rows, parse)
    return rows.where(bad)


def _where(rows: DataFrame, made: Definition, problems: Problems) -> DataFrame:
    if not made.where:
        return rows
    tried = _tried("select.where", problems, lambda: rows.where(F.expr(made.where)))
    return rows if tried is None else tried


def _columns(rows: DataFrame, made: Definition, problems: Problems) -> list[Column]:
    """Return the columns of `select.columns`, or all; of one that is wrong, a null."""
    if not made.columns:
        return [F.col(name) for name in rows.columns if name != MESSAGE]
    found = []
    for name, text in made.columns.items():
        column = F.expr("null") if _analysed(rows, f"select.columns.{name}", text, problems) is None else F.expr(text)
        found.append(column.alias(name))
    return found


def _analysed(rows: DataFrame, key: str, text: str, problems: Problems) -> DataFrame | None:
    return _tried(key, problems, lambda: rows.select(F.expr(text)))


def _tried(key: str, problems: Problems, build: Callable[[], DataFrame]) -> DataFrame | None:
    """Build a part of the query; an error of Spark's analysis becomes a problem."""
    try:
        made = build()
        made.schema  # noqa: B018 - Spark analyses it now.
    except PySparkException as error:
        problems.add(key, cause(error).removesuffix(";"))
        return None
    return made


def _windowed(rows: DataFrame, window: Window, problems: Problems) -> DataFrame:
    kinds = dict(rows.dtypes)
    if window.time:
        if kinds[window.time] not in _TIMES:
            problems.add(
                "window.time", f"{window.time} is {kinds[window.time]}; make it a timestamp in parse or select"
            )
            return rows
        rows = rows.withColumn(_AT, F.col(window.time).cast("timestamp"))
    keyed = in_windows(rows, _AT, window.length, window.late)
    wrong = len(problems)
    for name, text in window.values.items():
        _tried(f"window.values.{name}", problems, lambda text=text: keyed.groupBy("window").agg(F.expr(text)))  # type: ignore[misc]
    if len(problems) > wrong:
        return rows
    values = [F.expr(text).alias(name) for name, text in window.values.items()]
    grouped = keyed.groupBy("window", *window.by).agg(*values)
    return grouped.select("window.start", "window.end", *window.by, *window.values)


def target_writer(spark: SparkSession, rows: DataFrame, made: Definition, place: Place) -> DataStreamWriter:
    """Return the writer to the pipeline's target."""
    target = made.target
    if target.directory:
        return writer(spark, rows, target.form, target.directory, target.partition_by)
    return to_topic(as_messages(rows, made), target.topic, place)


def to_topic(rows: DataFrame, topic: str, place: Place) -> DataStreamWriter:
    """Return the writer of messages to a topic."""
    return rows.writeStream.format("pubsub").options(topic=topic, sink=SINK, **place.options)


def as_messages(rows: DataFrame, made: Definition) -> DataFrame:
    """Return rows as messages: JSON objects, or the columns value, key and headers as they are."""
    target = made.target
    if target.encoding == RAW:
        return rows.select(*(name for name in ("value", "key", "headers") if name in rows.columns))
    options = {"ignoreNullFields": "false", "timestampFormat": _TIME_FORMAT}
    columns: Sequence[Column] = [F.to_json(F.struct(*rows.columns), options).alias("value")]
    if target.key:
        columns = [*columns, F.col(target.key).cast("string").alias("key")]
    return rows.select(*columns)
