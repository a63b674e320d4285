"""The source of a batch job: a range of each topic, once (docs/explanation/spark-exchange.md, K7)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pubsub.errors import CallerError
from pubsub.protocol import Position
from pubsub.protocol.names import Start
from pubsub.spark.asking import Asking
from pubsub.spark.ranges import Plan, names
from pubsub.spark.reading import Part, parts_of, read_part
from pubsub.spark.starts import between, start_of, stop_of

_log: Final = logging.getLogger("pubsub.spark")


class BatchReader(Asking, DataSourceReader):
    """Reads a range of topics once."""

    tells_absent = True

    def partitions(self) -> Sequence[InputPartition]:
        """Return the present ranges of all topics."""
        topics = self.named()
        if not topics:
            raise CallerError(f"no topic matches subscribePattern {self.options.pattern}")
        try:
            plans = {topic: self._plan(topic) for topic in topics}
        finally:
            self.close()
        _log.info("reading %s", names(topics))
        return parts_of(self.options, plans)

    def _plan(self, topic: str) -> tuple[Position | None, Plan]:
        starting, ending = start_of(self.options, topic, "earliest"), stop_of(self.options, topic)
        plan = whole = self.topics.plan(topic, None)
        if (starting, ending) != ("earliest", "latest"):
            # Leave edges out of the request where possible: then they belong to the same answer, even after a merge.
            after = self._after(topic, starting, whole)
            until = self._until(topic, ending, whole)
            if starting == ending == "latest":
                until = after
            if _is_empty(after, until):
                return after, replace(whole, latest=after, within=after, legs=(), left_out=())
            plan = self.topics.plan(topic, after, until)
            if after is not None:
                return after, plan
        return plan.stands, plan

    def _after(self, topic: str, starting: Start, whole: Plan) -> Position | None:
        if isinstance(starting, int):
            return self.topics.before(topic, starting)
        if starting == "latest":
            return whole.latest
        return starting if isinstance(starting, tuple) else None

    def _until(self, topic: str, ending: Start, whole: Plan) -> Position | None:
        if isinstance(ending, int):
            return self.topics.last_before(topic, ending)
        if ending == "earliest":
            return whole.stands
        return ending if isinstance(ending, tuple) else None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range, on an executor."""
        if not isinstance(partition, Part):
            return iter(())  # Spark's own partition, made where `partitions` returns none: nothing is to be read.
        topic = partition.range.topic
        start, stop = start_of(self.options, topic, "earliest"), stop_of(self.options, topic)
        if not isinstance(start, int) and not isinstance(stop, int):
            return read_part(self.options, partition.range)
        columns = self.options.columns
        stamped = replace(self.options, columns=(*columns, *({"stamp"} - set(columns))))
        return (rows.select(columns) for rows in between(read_part(stamped, partition.range), start, stop))


def _is_empty(after: Position | None, until: Position | None) -> bool:
    """Return True if a range ends before it begins, in one log; the server refuses such a range."""
    return after is not None and until is not None and after[0] == until[0] and until[1] <= after[1]
