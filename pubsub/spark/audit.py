"""The audit: joins the clients' records (docs/audit.md) and lists every message that breaks a guarantee.

It uses the records only, and nothing else of the service. Its rules, for each subscriber:

    lost         An acknowledged put did not arrive, although the subscriber received both earlier and later ones of
                 that publisher. Or the subscription, which still exists, was answered before the put began, and the
                 subscriber has drained the topic since. A put in doubt that any subscriber received counts as
                 acknowledged: all or none.
    doubled      A message arrived more than once in one replay without the mark `doubtful`.
    reordered    A publisher's message arrived in one replay after a later one of the same publisher, and neither is
                 marked.
    unexplained  A message arrived without any put, or after an unsubscribe was answered, or it was acknowledged before
                 the subscription was requested.

Within one client, lines are ordered by (session, n), without a clock. Between clients, times are compared: directly
within one boot of one host, otherwise with a difference of `skew`. Where a record is known to be incomplete, missing
messages are counted as unrecorded and are not flaws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from pubsub.errors import CallerError

SCHEMA: Final = (
    "client string, session bigint, n bigint, at bigint, kind string, topic string, publisher string, first bigint,"
    " count bigint, result string, `on` boolean, handler boolean, log string, `offset` bigint, boot string,"
    " doubtful boolean, continues boolean, replay bigint, start string"
)
KINDS: Final = ("lost", "doubled", "reordered", "unexplained")
FOREVER: Final = (1 << 63) - 1
SKEW_SECONDS: Final = 1.0

_LINES: Final = """
    SELECT client, session, n, at, kind, topic, publisher, first, first + count - 1 AS last, count, result,
        `on` AS wanted, log, `offset`, boot, coalesce(doubtful, false) AS doubtful,
        coalesce(continues, false) AS continues, coalesce(replay, 0) AS replay, start
    FROM $raw WHERE NOT damaged
"""

_OPENS: Final = "SELECT client, session, boot FROM $lines WHERE kind = 'open'"

# An epoch lasts from one request of a client, to subscribe or to unsubscribe, to the next. A request that continues a
# subscription begins no epoch. If it is the first of its epoch, the beginning of the subscription is unknown. So is
# that of a seek, and of a subscription with a start.
_TIMELINE: Final = """
    SELECT *, count_if(kind = 'subscription' AND result = 'asked' AND NOT continues) OVER w AS epoch,
        last(IF(kind = 'subscription', concat(result, ' ', wanted), NULL), true) OVER w AS state
    FROM $lines WHERE kind IN ('subscription', 'delivery', 'drained')
    WINDOW w AS (PARTITION BY client, topic ORDER BY session, n)
"""

_EPOCHS: Final = """
    WITH told AS (
        SELECT client, topic, epoch,
            min(IF(result = 'asked' AND wanted AND NOT continues AND start IS NULL, at, NULL)) AS asked,
            min(IF(kind = 'subscription' AND result IN ('answered', 'known') AND wanted,
                named_struct('at', at, 'session', session), NULL)) AS answered,
            max(IF(kind = 'drained', named_struct('at', at, 'session', session), NULL)) AS drained,
            max_by(state, struct(session, n)) IN ('answered true', 'known true')
                AND epoch = max(epoch) OVER (PARTITION BY client, topic) AS open
        FROM $timeline GROUP BY client, topic, epoch
    )
    SELECT told.client, topic, epoch, asked, answered.at AS answered, a.boot AS boot, coalesce(open, false) AS open,
        IF(:drained AND open, :forever, drained.at) AS drained, d.boot AS drained_boot
    FROM told
    LEFT JOIN $opens AS a ON a.client = told.client AND a.session = told.answered.session
    LEFT JOIN $opens AS d ON d.client = told.client AND d.session = told.drained.session
"""

# Facts about each message: the times of its begin and acknowledgement, the time from which it certainly was on a server
# (`there`), and its deliveries.
_MESSAGES: Final = """
    WITH said AS (
        SELECT topic, publisher, first, last, result, at, host, NULL AS got
        FROM $lines LEFT JOIN (SELECT client, session, boot AS host FROM $opens) USING (client, session)
        WHERE kind = 'put' AND result IN ('begun', 'unfinished', 'acknowledged', 'discarded')
        UNION ALL
        SELECT topic, publisher, first, last, '', at, NULL, named_struct('client', client, 'session', session, 'n', n,
            'epoch', epoch, 'log', log, 'shift', `offset` - first, 'doubtful', doubtful, 'replay', replay)
        FROM $timeline WHERE kind = 'delivery'
    ), message AS (
        SELECT topic, publisher, counter, bool_or(result <> '') AS put,
            min(IF(result = 'begun', named_struct('at', at, 'host', host), NULL)) AS began,
            min(IF(result = 'acknowledged', named_struct('at', at, 'host', host), NULL)) AS acknowledged,
            bool_or(result = 'discarded') AS discarded, min(IF(result = '', at, NULL)) AS seen, collect_list(got) AS got
        FROM said LATERAL VIEW explode(sequence(first, last)) each AS counter GROUP BY topic, publisher, counter
    )
    SELECT topic, publisher, counter, put, coalesce(began.at, 0) AS began, began.host AS host,
        acknowledged.at AS acknowledged, acknowledged.host AS acknowledged_host, discarded,
        IF(put, coalesce(acknowledged.at, seen), NULL) AS there, got
    FROM message
"""

# Counters (above, upto] that a record lacks, according to the client's state.
_TAKEN_HOLES: Final = """
    SELECT client, topic, publisher, above, first AS upto FROM (
        SELECT *, coalesce(max(IF(kind = 'delivery', last, NULL)) OVER (PARTITION BY client, topic, publisher
            ORDER BY session, n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS above
        FROM $lines WHERE kind IN ('delivery', 'taken_before')
    ) WHERE kind = 'taken_before' AND first > above
"""

_PUT_HOLES: Final = """
    SELECT topic, publisher, above, first AS upto FROM (
        SELECT *, coalesce(max(IF(kind = 'put', last, NULL)) OVER (PARTITION BY topic, publisher
            ORDER BY session, n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS above
        FROM $lines WHERE kind = 'put_before' OR kind = 'put' AND result IN ('begun', 'unfinished')
    ) WHERE kind = 'put_before' AND first > above
    UNION ALL SELECT topic, publisher, first - 1, last FROM $lines WHERE kind = 'gap' AND publisher IS NOT NULL
"""

# Messages for a subscriber that did not arrive. `due`: it should have arrived. `recorded`: its record has no hole.
_MISSING: Final = """
    WITH eligible AS (
        SELECT /*+ BROADCAST(e) */ e.client, m.topic, publisher, counter, acknowledged,
            coalesce(there + IF(acknowledged_host <=> drained_boot AND drained_boot <> '', 0, :skew) < drained, false)
                AS due, false AS between
        FROM $messages AS m JOIN $epochs AS e
            ON m.topic = e.topic AND began > answered + IF(host <=> boot AND boot <> '', 0, :skew)
        WHERE there IS NOT NULL AND open AND NOT exists(got, one -> one.client = e.client)
    ), bounds AS (
        SELECT client, topic, publisher, epoch, min(first) AS lowest, max(last) AS highest
        FROM $timeline WHERE kind = 'delivery' GROUP BY client, topic, publisher, epoch
    ), passed AS (
        SELECT /*+ BROADCAST(b) */ b.client, m.topic, m.publisher, counter, acknowledged, true AS due, true AS between
        FROM $messages AS m JOIN bounds AS b
            ON m.topic = b.topic AND m.publisher = b.publisher AND counter > lowest AND counter < highest
        WHERE there IS NOT NULL AND NOT exists(got, one -> one.client = b.client)
    )
    SELECT m.client, m.topic, m.publisher, counter, max(acknowledged) IS NOT NULL AS acknowledged, max(due) AS due,
        max(between) AS between, max(upto) IS NULL AS recorded
    FROM (SELECT * FROM eligible UNION ALL SELECT * FROM passed) AS m LEFT JOIN $taken_holes AS h
        ON h.client = m.client AND h.topic = m.topic AND h.publisher = m.publisher AND counter > above
        AND counter <= upto
    GROUP BY m.client, m.topic, m.publisher, counter
"""

# Deliveries without a recorded put. `recorded`: the publisher's record has no hole there.
_FOREIGN: Final = """
    WITH known AS (
        SELECT DISTINCT publisher FROM $lines WHERE kind IN ('put', 'put_before', 'open', 'renewed')
    ), foreign AS (
        SELECT client, topic, publisher, counter, min(concat(log, '.', shift + counter)) AS id
        FROM $messages LATERAL VIEW inline(got) one WHERE NOT put GROUP BY client, topic, publisher, counter
    )
    SELECT f.client, f.topic, f.publisher, counter, id, max(upto) IS NULL AS recorded,
        max(known.publisher) IS NOT NULL AS known
    FROM foreign AS f LEFT JOIN known ON known.publisher = f.publisher
    LEFT JOIN $put_holes AS h
        ON h.topic = f.topic AND h.publisher = f.publisher AND counter > above
        AND counter <= upto
    GROUP BY f.client, f.topic, f.publisher, counter, id
"""

_DOUBLED: Final = """
    SELECT 'doubled' AS kind, client, topic, publisher, counter, max_by(id, struct(session, n)) AS id,
        concat('it came ', count(*), ' times, first as ', min_by(id, struct(session, n))) AS reason
    FROM (SELECT *, concat(log, '.', shift + counter) AS id FROM $messages LATERAL VIEW inline(got) one
        WHERE size(got) > size(array_distinct(got.client)))
    WHERE NOT doubtful GROUP BY client, topic, publisher, counter, replay HAVING count(*) > 1
"""

# Deliveries below an earlier counter, message by message. A message that had arrived before counts as doubled instead.
_REORDERED: Final = """
    WITH late AS (
        SELECT * FROM (
            SELECT *, max(last) OVER (PARTITION BY client, topic, publisher, replay ORDER BY session, n
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newest
            FROM $timeline WHERE kind = 'delivery' AND NOT doubtful
        ) WHERE first < newest
    ), single AS (
        SELECT client, topic, publisher, counter, concat(log, '.', `offset` + counter - first) AS id, newest
        FROM late LATERAL VIEW explode(sequence(first, last)) each AS counter WHERE counter < newest
    )
    SELECT 'reordered' AS kind, client, topic, publisher, counter, id,
        concat('it came after counter ', newest) AS reason
    FROM single LEFT ANTI JOIN $doubled USING (client, topic, publisher, counter)
"""

_FLAWS: Final = """
    SELECT 'lost' AS kind, client, topic, publisher, counter, '' AS id, concat(
        IF(acknowledged, 'acknowledged', 'in doubt, and others got it'),
        IF(between, '; earlier and later ones came', '; the subscriber had drained the topic')) AS reason
    FROM $missing WHERE due AND recorded
    UNION ALL SELECT * FROM $doubled
    UNION ALL SELECT * FROM $reordered
    UNION ALL SELECT 'unexplained', client, topic, publisher, counter, id,
        IF(known, 'its publisher''s record does not have it', 'its publisher has no record')
    FROM $foreign WHERE recorded AND (known OR NOT :partial)
    UNION ALL SELECT 'unexplained', client, topic, publisher, counter, concat(log, '.', `offset` + counter - first),
        'it came after the unsubscribe was answered'
    FROM $timeline LATERAL VIEW explode(sequence(first, last)) each AS counter
    WHERE kind = 'delivery' AND state IN ('answered false', 'known false')
    UNION ALL SELECT /*+ BROADCAST(e) */ 'unexplained', e.client, e.topic, publisher, counter,
        concat(log, '.', shift + counter), 'it was acknowledged before the subscription was asked for'
    FROM (SELECT * FROM $messages LATERAL VIEW inline(got) one WHERE acknowledged IS NOT NULL) AS m JOIN $epochs AS e
        ON e.client = m.client AND e.topic = m.topic AND e.epoch = m.epoch AND acknowledged + :skew < asked
"""

_COUNTS: Final = """
    SELECT *, unrecorded_gets + unrecorded_puts AS unrecorded FROM
    (SELECT count(n) AS lines, count_if(damaged) AS damaged_lines FROM $raw),
    (SELECT count(DISTINCT client) AS clients, count_if(kind = 'open') AS sessions,
        coalesce(sum(IF(kind = 'gap' AND topic IS NULL, count, 0)), 0) AS lines_missing,
        count_if(kind = 'loss') AS losses_told,
        coalesce(sum(IF(kind = 'delivery', count, 0)), 0) AS delivered,
        coalesce(sum(IF(kind = 'delivery' AND result = 'dead_letter', count, 0)), 0) AS dead_letters FROM $lines),
    (SELECT count_if(put) AS put, count(acknowledged) AS acknowledged,
        count_if(acknowledged IS NULL AND discarded) AS discarded,
        count_if(put AND acknowledged IS NULL AND NOT discarded) AS in_doubt FROM $messages),
    (SELECT count_if(recorded AND NOT due) AS not_due, count_if(NOT recorded) AS unrecorded_gets FROM $missing),
    (SELECT count_if(NOT recorded) AS unrecorded_puts FROM $foreign),
    (SELECT count_if(kind = 'lost') AS lost, count_if(kind = 'doubled') AS doubled,
        count_if(kind = 'reordered') AS reordered, count_if(kind = 'unexplained') AS unexplained FROM $flaws)
"""

ORDER: Final = (
    "lines", "damaged_lines", "lines_missing", "clients", "sessions", "put", "acknowledged", "discarded", "in_doubt",
    "delivered", "dead_letters", "losses_told", "not_due", "unrecorded", *KINDS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Flaw:
    """One message that breaks a guarantee.

    Attributes:
        kind: one of KINDS.
        id: `log.offset` of the message; "" if it did not arrive.
    """

    kind: str
    subscriber: str
    topic: str
    publisher: str
    counter: int
    id: str
    reason: str


class Audit:
    """The results of the records; everything is computed on demand.

    Args:
        records: files of JSON lines or Parquet, and directories with both.
        drained: every subscriber had taken all its messages at the end of its record.
        partial: messages of publishers without any record are not flaws.
        skew: largest difference between the clocks of different hosts, including servers, in seconds.

    Raises:
        CallerError: a record does not exist or cannot be read.
    """

    def __init__(
        self,
        spark: SparkSession,
        records: Sequence[str],
        *,
        drained: bool = False,
        partial: bool = False,
        skew: float = SKEW_SECONDS,
    ) -> None:
        self._spark = spark
        self._arguments = {
            "skew": int(skew * 1_000_000), "drained": drained, "forever": FOREVER, "partial": partial,
        }  # fmt: skip
        self._prefix = f"audit_{uuid4().hex}_"
        self._views: list[str] = []
        self._name("raw", _read(spark, records), keep=True)
        self._name("lines", self._once(self._sql(_LINES)))
        self._name("opens", self._sql(_OPENS))
        self._name("timeline", self._sql(_TIMELINE), keep=True)
        self._name("epochs", self._sql(_EPOCHS), keep=True)
        self._name("messages", self._sql(_MESSAGES), keep=True)
        self._name("taken_holes", self._sql(_TAKEN_HOLES))
        self._name("put_holes", self._sql(_PUT_HOLES))
        self._name("missing", self._sql(_MISSING), keep=True)
        self._name("foreign", self._sql(_FOREIGN), keep=True)
        self._name("doubled", self._sql(_DOUBLED))
        self._name("reordered", self._sql(_REORDERED))
        self._name("flaws", self._sql(_FLAWS), keep=True)

    def _name(self, name: str, frame: DataFrame, *, keep: bool = False) -> None:
        if keep:
            frame = self._checkpoint(frame)
        frame.createOrReplaceTempView(self._prefix + name)
        self._views.append(self._prefix + name)

    def _once(self, lines: DataFrame) -> DataFrame:
        """Remove repeated lines: a record may be named twice, and one in Parquet may still have its lines."""
        key = ["client", "session", "n"]
        twice = lines.groupBy(*key).count().where("count > 1")
        return lines.dropDuplicates(key) if twice.head(1) else lines

    def _checkpoint(self, frame: DataFrame) -> DataFrame:
        """Compute a frame once and end its plan there. Otherwise each query would plan all earlier steps many times.

        The result lives on the executors, or in `spark.checkpoint.dir` if that is set, where it survives them.
        """
        if self._spark.sparkContext.getCheckpointDir() is not None:
            return frame.checkpoint(eager=False)
        return frame.localCheckpoint(eager=False)

    def _sql(self, text: str) -> DataFrame:
        named = {name: value for name, value in self._arguments.items() if f":{name}" in text}
        return self._spark.sql(text.replace("$", self._prefix), named)

    def flaws(self) -> Iterator[Flaw]:
        """Yield the flaws by kind, subscriber, topic, publisher and counter, with only a part of them in memory."""
        rows = self._sql("SELECT * FROM $flaws ORDER BY kind, client, topic, publisher, counter, reason")
        for row in rows.toLocalIterator():
            yield Flaw(*row)

    def counts(self) -> dict[str, int]:
        """Return the counts by name; the last four are the flaws."""
        (row,) = self._sql(_COUNTS).collect()
        return {name: int(row[name]) for name in ORDER}

    def close(self) -> None:
        """Drop the views; computed data is freed when it is no longer referenced."""
        for view in self._views:
            self._spark.catalog.dropTempView(view)


def _read(spark: SparkSession, records: Sequence[str]) -> DataFrame:
    """Return all lines; `damaged` marks text that is not a line."""
    frames = [frame for record in records for frame in _frames(spark, record)]
    whole = F.col("damaged").isNull() & F.col("client").isNotNull() & F.col("session").isNotNull()
    return reduce(DataFrame.unionByName, frames).withColumn("damaged", ~(whole & F.col("n").isNotNull()))


def _frames(spark: SparkSession, record: str) -> Iterator[DataFrame]:
    there = "://" in record or Path(record).exists()
    if not there:
        raise CallerError(f"{record}: there is no such record; give a file or directory that --record wrote")
    lines = spark.read.schema(f"{SCHEMA}, damaged string").option("columnNameOfCorruptRecord", "damaged")
    arrow = spark.read.schema(SCHEMA)
    try:
        if "://" in record or Path(record).is_dir():
            lines.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.jsonl*")
            arrow.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.parquet")
        elif Path(record).suffix == ".parquet":
            yield arrow.parquet(record).withColumn("damaged", F.lit(None).cast("string"))
            return
        else:
            yield lines.json(record)
            return
        yield lines.json(record)
        yield arrow.parquet(record).withColumn("damaged", F.lit(None).cast("string"))
    except AnalysisException as error:
        raise CallerError(f"{record}: {str(error).splitlines()[0]}") from None
