"""Functions of pandas and Arrow between the source and the sink."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.spark.broker import Broker
from tests.spark.test_exactly_once import ROWS, TOPICS, Bench

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def test_columns_are_the_same_in_pandas_and_in_arrow(broker: Broker, session: Any) -> None:
    """A value is bytes; a timestamp is the same instant, without a zone in pandas and with one in Arrow."""
    import pandas as pd
    import pyarrow as pa

    def by_pandas(frames: Any) -> Any:
        for frame in frames:
            kinds = {type(value).__name__ for value in frame["value"]} | {str(frame["stamp"].dt.tz)}
            yield pd.DataFrame(
                {"message_id": frame["message_id"], "stamp": frame["stamp"], "kinds": str(sorted(kinds))}
            )

    def by_arrow(batches: Any) -> Any:
        for batch in batches:
            kinds = str([str(batch.schema.field(name).type) for name in ("value", "stamp")])
            columns = [batch.column("message_id"), batch.column("stamp"), pa.array([kinds] * batch.num_rows)]
            yield pa.RecordBatch.from_arrays(columns, names=["message_id", "stamp", "kinds"])

    broker.put("t", [b"%d" % number for number in range(300)])
    rows = session.read.format("pubsub").option("proxies", broker.address).option("subscribe", "t").load()
    shape = "message_id string, stamp timestamp, kinds string"
    expected = {row.message_id: row.stamp for row in rows.collect()}
    for name, change, kinds in (
        ("mapInPandas", by_pandas, "['None', 'bytes']"),
        ("mapInArrow", by_arrow, "['binary', 'timestamp[us, tz=UTC]']"),
    ):
        found = getattr(rows, name)(change, shape).collect()
        assert {row.message_id: row.stamp for row in found} == expected, name
        assert {row.kinds for row in found} == {kinds}, name


@pytest.mark.parametrize("step", ["between", "published"])
def test_a_function_with_another_result_each_time_leaves_each_row_once(session: Any, tmp_path: Path, step: str) -> None:
    """The batch is repeated with other values; of each topic, the rows of one run appear."""
    bench = Bench(tmp_path)
    try:
        bench.run().killed(step=step, batch=1, pandas=True)
        bench.finish(session, pandas=True)
        for topic in TOPICS:
            found = [value.split(b" ") for value in bench.records(f"{topic}.copy")]
            assert Counter(value for value, _ in found) == Counter(
                f"{topic}{number}".encode() for number in range(ROWS)
            )
            assert len({drawn for _, drawn in found}) == ROWS
    finally:
        bench.close()
