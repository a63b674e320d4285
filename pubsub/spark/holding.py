"""Keeps the messages that a batch job reads, for as long as the job runs.

A batch job has no subscription, so the service may delete old messages between its plan and its last task. The job then
ends with an error. A subscription for the time of the job prevents that. Spark tells a source in Python nothing about
the end of a batch job, so the driver's program holds the subscription.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pubsub.errors import CallerError, ConfigurationError
from pubsub.spark.batch_source import BatchReader
from pubsub.spark.options import source_options

PREFIX: Final = "hold"
"""Begin of the names of these subscriptions; with keys, a client needs the right `names=hold-*`."""


@contextmanager
def held(options: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Keep all stored messages of a batch job's topics for the time of a `with` block.

        with held({"proxies": "tcp://10.0.0.1:5601", "subscribe": "orders"}) as options:
            spark.read.format("pubsub").options(**options).load().write.parquet("orders")

    If the program is killed in the block, the subscriptions stay. `pubsub topic unsubscribe TOPIC --subscriber hold`
    ends them.

    Args:
        options: options of the source for `spark.read`, without `subscription`.

    Yields:
        The options with a subscription that begins at the oldest stored message.

    Raises:
        ConfigurationError: an option is not valid.
        NotKnown: a topic does not exist.
        PubsubError: see `Proxies.ask`.
    """
    if "subscription" in {name.lower() for name in options}:
        raise ConfigurationError("option subscription is made here; drop it")
    reader = BatchReader(source_options(options, stream=False))
    topics = reader.named()
    if not topics:
        raise CallerError(f"no topic matches subscribePattern {reader.options.pattern}")
    for topic in topics:
        reader.topics.plan(topic, None)  # A subscription would make a topic that does not exist.
    reader.subscription = f"{PREFIX}-{secrets.token_hex(8)}"
    made: list[str] = []
    try:
        for topic in topics:
            made.append(topic)  # An unanswered request may have made it.
            reader.topics.subscribe(topic, "earliest")
        yield {**options, "subscription": reader.subscription}
    finally:
        try:
            for topic in made:
                reader.topics.unsubscribe(topic)
        finally:
            reader.close()
