"""A task's part of a batch: a range of a topic, read through the proxies.

See docs/explanation/spark-exchange.md, *Ranges*.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pubsub.base.limits import BATCH_RECORDS_MAX
from pubsub.client.requests import Proxies
from pubsub.protocol import Outcome, Position, Read
from pubsub.protocol.names import format_position, parse_position
from pubsub.spark.arrow import record_batch
from pubsub.spark.connections import lend
from pubsub.spark.options import SourceOptions
from pubsub.spark.ranges import Plan, Range, RangeChanged, RangeLost, cut, gone, read_plan

PART_RECORDS_MIN: Final = 1_000
"""Minimum records of a part, however many parts are requested."""

PART_RECORDS: Final = 200_000
PART_BYTES: Final = 32 * 1024 * 1024
"""Records and bytes beyond which a batch is divided further, so that a large batch occupies a large cluster."""

PART_RECORDS_MAX: Final = 1_000_000
"""Maximum records of a part, so that a repeated task repeats little."""

ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Bytes requested in one answer."""

_log: Final = logging.getLogger("pubsub.spark")


@dataclass
class Part(InputPartition):
    """A range for one task, with positions as text, and the durable subscription that it belongs to; "" for none."""

    range: Range
    subscription: str

    def __init__(self, part: Range, subscription: str = "") -> None:
        super().__init__(part)
        self.range, self.subscription = part, subscription


def read_part(options: SourceOptions, part: Range, subscription: str = "") -> Iterator[pa.RecordBatch]:
    """Yield the records of a range; the next answer is requested before the present one is yielded.

    Args:
        subscription: name of the durable subscription; "" takes that of the options.

    Raises:
        RangeLost: records of it are lost, and the option says to fail.
        RangeChanged: a merge has changed it.
        Unavailable: no answer came within the time-out.
    """
    until, client, name = parse_position(part.until), options.identity.client, subscription or options.subscription
    with lend(options.identity, options.proxies, options.timeout) as link:

        def ask(after: Position | None) -> Read:
            return Read(client, part.topic, after, until, name, BATCH_RECORDS_MAX, ANSWER_BYTES)

        after = parse_position(part.after) if part.after else None
        pending = link.start(ask(after))
        while True:
            status = link.finish(pending)
            if status.outcome not in {Outcome.SUCCESS, Outcome.EMPTY, Outcome.LOST} or status.message is None:
                lost = gone(part.topic, after, until, status, name, merged=bool(part.legs))
                if options.fail_on_data_loss or not is_before(after, status.position):
                    raise lost
                _log.warning("%s; continuing with the remaining records", lost)
                after = status.position
                if after == until or is_before(until, after):
                    return
                pending = link.start(ask(after))
                continue
            after = status.message
            if status.message != until:
                pending = link.start(ask(status.message))
            if status.outcome is Outcome.SUCCESS:
                yield record_batch(part.topic, status, options.columns)
            elif status.outcome is Outcome.LOST:
                lost = RangeLost(
                    part.topic,
                    format_position(status.first),
                    format_position(status.message),
                    "the server cannot deliver them any more; option failOnDataLoss=false continues without them",
                )
                if options.fail_on_data_loss:
                    raise lost
                _log.warning("%s", lost)
            if status.message == until:
                break
        if part.legs:
            check_unchanged(link, part)


def check_unchanged(link: Proxies, part: Range) -> None:
    """Check after reading that a range still is as planned.

    Raises:
        RangeChanged: it is not.
        Unavailable: see `Proxies.ask`.
    """
    after, until = parse_position(part.after) if part.after else None, parse_position(part.until)
    status = link.ask(Read(link.asker.client, part.topic, after, until))
    if status.outcome is Outcome.BEHIND and is_before(after, status.position):
        return  # The records were deleted after they were read, because of their age or for room.
    if status.outcome is not Outcome.SUCCESS or read_plan(status).between(0, part.records) != part.legs:
        raise RangeChanged(part.topic)


def is_before(position: Position | None, other: Position | None) -> bool:
    """Return True if a position is before another one of the same log, as after a deletion of old records."""
    return position is not None and other is not None and position[0] == other[0] and position[1] < other[1]


def parts_of(
    options: SourceOptions, plans: Mapping[str, tuple[Position | None, Plan]], subscription: str = ""
) -> list[Part]:
    """Cut ranges for tasks: as many as requested or more, none too small and none too large.

    Args:
        subscription: see `read_part`.
    """
    total = sum(plan.records for _, plan in plans.values())
    size = sum(plan.bytes for _, plan in plans.values())
    least = options.partitions_min or options.partitions_default or os.cpu_count() or 1
    # A multiple of the least number, so that the last round of tasks leaves no core without one.
    wanted = least * max(1, -(-total // (PART_RECORDS * least)), -(-size // (PART_BYTES * least)))
    records = max(-(-total // wanted), 1 if options.partitions_min else PART_RECORDS_MIN)
    records = min(records, PART_RECORDS_MAX, options.part_records_max or PART_RECORDS_MAX)
    begins = {topic: plan.stands if plan.lost else after for topic, (after, plan) in plans.items()}
    return [
        Part(part, subscription)
        for topic in sorted(plans)
        for part in cut(topic, begins[topic], plans[topic][1], records)
    ]
