"""The audit: joins what clients recorded (docs/audit.md) and lists every message that was not treated as promised.

It knows the records and nothing else of the service. Its rules, for each subscriber:

    lost         an acknowledged put did not come, though the subscriber has got both earlier and later ones of that
                 publisher; or though the subscription, which is still there, was answered before it began, and the
                 subscriber has drained the topic since. A put in doubt that came to anybody counts as acknowledged
                 then: all or none.
    doubled      a message came more than once
    reordered    a publisher's message came after a later one of its
    unexplained  a message came that nobody put, or after an unsubscribe was answered, or that was acknowledged before
                 the subscription was asked for

Within one client lines are ordered by (session, n), without a clock. Between clients times are compared: of one boot of
one host as they are, else `skew` apart. Where a record is known to lack something, what would lie there is counted as
unrecorded, and is no flaw.
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
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pubsub.errors import CallerError

SCHEMA: Final = (
    "client string, session bigint, n bigint, at bigint, kind string, topic string, publisher string, first bigint,"
    " count bigint, result string, `on` boolean, handler boolean, log string, `offset` bigint, boot string"
)
KINDS: Final = ("lost", "doubled", "reordered", "unexplained")
FOREVER: Final = (1 << 63) - 1
SKEW_SECONDS: Final = 1.0

_LINES: Final = """
    SELECT client, session, n, at, kind, topic, publisher, first, first + count - 1 AS last, count, result,
        `on` AS wanted, log, `offset`, boot
    FROM $raw WHERE NOT damaged
"""

_OPENS: Final = "SELECT client, session, boot FROM $lines WHERE kind = 'open'"

# An epoch lasts from one time that a client asked for, or against, a topic to the next.
_TIMELINE: Final = """
    SELECT *, count_if(kind = 'subscription' AND result = 'asked') OVER w AS epoch,
        last(IF(kind = 'subscription', concat(result, ' ', wanted), NULL), true) OVER w AS state
    FROM $lines WHERE kind IN ('subscription', 'delivery', 'drained')
    WINDOW w AS (PARTITION BY client, topic ORDER BY session, n)
"""

_EPOCHS: Final = """
    WITH told AS (
        SELECT client, topic, epoch,
            min(IF(result = 'asked' AND wanted, at, NULL)) AS asked,
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

_DELIVERIES: Final = """
    SELECT client, topic, publisher, counter, session, n, at, concat(log, '.', `offset` + counter - first) AS id,
        epoch, state, result
    FROM $timeline LATERAL VIEW explode(sequence(first, last)) AS counter WHERE kind = 'delivery'
"""

# When each put began and was acknowledged; `there`: when it certainly was on a server.
_PUTS: Final = """
    WITH told AS (
        SELECT topic, publisher, counter, result, at, host
        FROM (SELECT l.*, o.boot AS host FROM $lines AS l LEFT JOIN $opens AS o USING (client, session)
            WHERE kind = 'put' AND result IN ('begun', 'unfinished', 'acknowledged', 'discarded'))
        LATERAL VIEW explode(sequence(first, last)) AS counter
    ), put AS (
        SELECT topic, publisher, counter,
            min(IF(result = 'begun', named_struct('at', at, 'host', host), NULL)) AS began,
            min(IF(result = 'acknowledged', named_struct('at', at, 'host', host), NULL)) AS acknowledged,
            bool_or(result = 'discarded') AS discarded
        FROM told GROUP BY topic, publisher, counter
    ), seen AS (
        SELECT topic, publisher, counter, min(at) AS at FROM $deliveries GROUP BY topic, publisher, counter
    )
    SELECT topic, publisher, counter, coalesce(began.at, 0) AS began, began.host AS host,
        acknowledged.at AS acknowledged, acknowledged.host AS acknowledged_host, discarded,
        coalesce(acknowledged.at, seen.at) AS there
    FROM put LEFT JOIN seen USING (topic, publisher, counter)
"""

# Counters (above, upto] that a record lacks, as the client's state says.
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

# What was put for a subscriber and did not come: `due`, or not yet; `recorded`, or where its record has a hole.
_MISSING: Final = """
    WITH eligible AS (
        SELECT e.client, p.topic, p.publisher, p.counter, p.acknowledged IS NOT NULL AS acknowledged,
            coalesce(p.there + IF(p.acknowledged_host <=> e.drained_boot AND e.drained_boot <> '', 0, :skew)
                < e.drained, false) AS due, false AS between
        FROM $puts AS p JOIN $epochs AS e
            ON p.topic = e.topic AND p.began > e.answered + IF(p.host <=> e.boot AND e.boot <> '', 0, :skew)
        WHERE p.there IS NOT NULL AND e.open
    ), bounds AS (
        SELECT client, topic, publisher, epoch, min(first) AS lowest, max(last) AS highest
        FROM $timeline WHERE kind = 'delivery' GROUP BY client, topic, publisher, epoch
    ), passed AS (
        SELECT b.client, p.topic, p.publisher, p.counter, p.acknowledged IS NOT NULL AS acknowledged,
            true AS due, true AS between
        FROM $puts AS p JOIN bounds AS b ON p.topic = b.topic AND p.publisher = b.publisher
            AND p.counter > b.lowest AND p.counter < b.highest
        WHERE p.there IS NOT NULL
    ), missing AS (
        SELECT * FROM (SELECT * FROM eligible UNION ALL SELECT * FROM passed) AS wanted
        LEFT ANTI JOIN $deliveries USING (client, topic, publisher, counter)
    )
    SELECT m.client, m.topic, m.publisher, m.counter, max(m.acknowledged) AS acknowledged, max(m.due) AS due,
        max(m.between) AS between, max(h.upto) IS NULL AS recorded
    FROM missing AS m LEFT JOIN $taken_holes AS h
        ON h.client = m.client AND h.topic = m.topic AND h.publisher = m.publisher
        AND m.counter > h.above AND m.counter <= h.upto
    GROUP BY m.client, m.topic, m.publisher, m.counter
"""

# Deliveries that no record of a put explains; `recorded`: the publisher's record has no hole there.
_FOREIGN: Final = """
    WITH known AS (
        SELECT DISTINCT publisher FROM $lines WHERE kind IN ('put', 'put_before', 'open', 'renewed')
    ), foreign AS (
        SELECT client, topic, publisher, counter, min(id) AS id FROM $deliveries
        LEFT ANTI JOIN $puts USING (topic, publisher, counter) GROUP BY client, topic, publisher, counter
    )
    SELECT f.client, f.topic, f.publisher, f.counter, f.id, max(h.upto) IS NULL AS recorded,
        max(known.publisher) IS NOT NULL AS known
    FROM foreign AS f LEFT JOIN known ON known.publisher = f.publisher
    LEFT JOIN $put_holes AS h
        ON h.topic = f.topic AND h.publisher = f.publisher AND f.counter > h.above AND f.counter <= h.upto
    GROUP BY f.client, f.topic, f.publisher, f.counter, f.id
"""

_DOUBLED: Final = """
    SELECT 'doubled' AS kind, client, topic, publisher, counter, max_by(id, struct(session, n)) AS id,
        concat('it came ', count(*), ' times, first as ', min_by(id, struct(session, n))) AS reason
    FROM $deliveries GROUP BY client, topic, publisher, counter HAVING count(*) > 1
"""

# Lines that begin below what came before, message by message; a message that had come before is doubled instead.
_REORDERED: Final = """
    WITH late AS (
        SELECT * FROM (
            SELECT *, max(last) OVER (PARTITION BY client, topic, publisher ORDER BY session, n
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newest
            FROM $timeline WHERE kind = 'delivery'
        ) WHERE first < newest
    ), single AS (
        SELECT client, topic, publisher, counter, concat(log, '.', `offset` + counter - first) AS id, newest
        FROM late LATERAL VIEW explode(sequence(first, last)) AS counter WHERE counter < newest
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
    UNION ALL SELECT 'unexplained', client, topic, publisher, counter, id, 'it came after the unsubscribe was answered'
    FROM $deliveries WHERE state IN ('answered false', 'known false')
    UNION ALL SELECT 'unexplained', client, topic, publisher, counter, id,
        'it was acknowledged before the subscription was asked for'
    FROM $deliveries JOIN $epochs USING (client, topic, epoch) JOIN $puts AS p USING (topic, publisher, counter)
    WHERE p.acknowledged + :skew < asked
"""

_COUNTS: Final = """
    SELECT *, unrecorded_gets + unrecorded_puts AS unrecorded FROM
    (SELECT count(n) AS lines, count_if(damaged) AS damaged_lines FROM $raw),
    (SELECT count(DISTINCT client) AS clients, count_if(kind = 'open') AS sessions,
        coalesce(sum(IF(kind = 'gap' AND topic IS NULL, count, 0)), 0) AS lines_missing,
        count_if(kind = 'loss') AS losses_told FROM $lines),
    (SELECT count(*) AS put, count(acknowledged) AS acknowledged,
        count_if(acknowledged IS NULL AND discarded) AS discarded,
        count_if(acknowledged IS NULL AND NOT discarded) AS in_doubt FROM $puts),
    (SELECT count(*) AS delivered, count_if(result = 'dead_letter') AS dead_letters FROM $deliveries),
    (SELECT count_if(recorded AND NOT due) AS not_due, count_if(NOT recorded) AS unrecorded_gets FROM $missing),
    (SELECT count_if(NOT recorded) AS unrecorded_puts FROM $foreign),
    (SELECT count_if(kind = 'lost') AS lost, count_if(kind = 'doubled') AS doubled,
        count_if(kind = 'reordered') AS reordered, count_if(kind = 'unexplained') AS unexplained FROM $flaws)
"""


@dataclass(frozen=True, slots=True)
class Flaw:
    """One message that was not treated as promised.

    Attributes:
        kind: one of KINDS.
        id: `log.offset` where it came with one; "" where it did not come.
    """

    kind: str
    subscriber: str
    topic: str
    publisher: str
    counter: int
    id: str
    reason: str


class Audit:
    """What the records say; everything is computed when it is asked for.

    Args:
        spark: the session.
        records: files of JSON lines or Parquet, and directories with both.
        drained: every subscriber has taken all that there was for it at the end of its record.
        partial: messages of publishers that have no record at all are no flaw.
        skew: the bound on the difference between clocks of different hosts, and of servers, in seconds.

    Raises:
        CallerError: a record is not there, or cannot be read.
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
        # A record that was named twice, and one whose Parquet and lines are both there, counts once.
        self._name("lines", self._sql(_LINES).dropDuplicates(["client", "session", "n"]), keep=True)
        self._name("opens", self._sql(_OPENS))
        self._name("timeline", self._sql(_TIMELINE), keep=True)
        self._name("epochs", self._sql(_EPOCHS), keep=True)
        self._name("deliveries", self._sql(_DELIVERIES), keep=True)
        self._name("puts", self._sql(_PUTS), keep=True)
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

    def _checkpoint(self, frame: DataFrame) -> DataFrame:
        """The same, computed once; its plan ends there, else each query would plan all before it many times over.

        It lives on the executors, or, where `spark.checkpoint.dir` is set, in that directory: it survives them there.
        """
        if self._spark.sparkContext.getCheckpointDir() is not None:
            return frame.checkpoint(eager=False)
        return frame.localCheckpoint(eager=False)

    def _sql(self, text: str) -> DataFrame:
        named = {name: value for name, value in self._arguments.items() if f":{name}" in text}
        return self._spark.sql(text.replace("$", self._prefix), named)

    def flaws(self) -> Iterator[Flaw]:
        """All of them, by kind and then by subscriber, topic, publisher and counter; no more than a part in memory."""
        rows = self._sql("SELECT * FROM $flaws ORDER BY kind, client, topic, publisher, counter, reason")
        for row in rows.toLocalIterator():
            yield Flaw(*row)

    def counts(self) -> dict[str, int]:
        """How many of what; the last four are the flaws."""
        (row,) = self._sql(_COUNTS).collect()
        found = {name: int(value) for name, value in row.asDict().items() if not name.startswith("unrecorded_")}
        return {name: value for name, value in found.items() if name not in KINDS} | {
            kind: found[kind] for kind in KINDS
        }

    def close(self) -> None:
        """Forget it; what was computed for it goes when nothing refers to it any more."""
        for view in self._views:
            self._spark.catalog.dropTempView(view)


def _read(spark: SparkSession, records: Sequence[str]) -> DataFrame:
    """All lines; `damaged`: it is none."""
    frames = [frame for record in records for frame in _frames(spark, record)]
    whole = F.col("damaged").isNull() & F.col("client").isNotNull() & F.col("session").isNotNull()
    return reduce(DataFrame.unionByName, frames).withColumn("damaged", ~(whole & F.col("n").isNotNull()))


def _frames(spark: SparkSession, record: str) -> Iterator[DataFrame]:
    there = "://" in record or Path(record).exists()
    if not there:
        raise CallerError(f"{record}: there is no such record")
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
