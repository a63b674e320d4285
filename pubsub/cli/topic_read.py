"""`pubsub topic read` and `pubsub topic times`: look at stored messages without a subscription."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from pubsub import console
from pubsub.cli.operating import SENDER
from pubsub.cli.times import times_as_json
from pubsub.client.look_back import PAGE_BYTES, PAGE_RECORDS, RangeReader, read_times
from pubsub.client.message_fields import written
from pubsub.client.requests import Proxies
from pubsub.client.starts import FORM, parse_start_text, parse_stop_text
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import REACHING, naming_default, takes_settings
from pubsub.errors import CallerError, DataLoss
from pubsub.protocol.names import check_topic, is_service_topic

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Patience = Annotated[
    float, typer.Option("--patience", min=0.05, max=600, metavar="SECONDS", help="Time limit for each answer.")
]


@takes_settings(ClientSettings, REACHING)
def read(
    loaded: Loaded[ClientSettings],
    name: Topic,
    start: Annotated[str, typer.Option("--start", metavar="START", help=f"First message: {FORM}.")] = "earliest",
    stop: Annotated[
        str | None,
        typer.Option(
            "--stop",
            metavar="STOP",
            help="now, or a time or age as in --start: before messages of that time; or the ID of the last message."
            " Default: at the end.",
        ),
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", min=1, metavar="N", help="Most messages to print; default: all.")
    ] = None,
    patience: Patience = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print each message as one line of JSON.")] = False,
) -> None:
    """Print stored messages of a topic, without a subscription.

    Nothing is acknowledged, and no subscriber misses a message. The topic has the messages that some subscriber needs,
    and those that it keeps: pubsub topic set TOPIC keep=7d. Lost messages are reported on standard error and passed
    over. The key needs the right to get from the topic.

    Without --json each message is printed unchanged, with an end of line if it has none. The fields of --json are those
    of pubsub client ID get.

    Example: pubsub topic read orders --start -1h --stop now --json.
    """
    _check(name)
    now = time.time()
    begins, ends = parse_start_text(start, now, "--start"), parse_stop_text(stop, now, "--stop")
    left = most
    with naming_default(loaded), Proxies.of(loaded.settings) as proxies:
        proxies.timeout_seconds = patience
        reader = RangeReader(proxies, SENDER, name, begins, ends)
        out = sys.stdout.buffer
        while left is None or left > 0:
            try:
                page = reader.page(min(left or PAGE_RECORDS, PAGE_RECORDS), PAGE_BYTES)
            except DataLoss as loss:
                console.complain(f"records {loss.first} to {loss.last} are lost ({loss.reason}); passed over")
                continue
            if page.ended:
                break
            for message in page.batch:
                out.write(written(message, as_json, alone=False))
            out.flush()
            left = None if left is None else left - len(page.batch)


@takes_settings(ClientSettings, REACHING)
def times(
    loaded: Loaded[ClientSettings],
    name: Topic,
    patience: Patience = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print how far a topic can be looked back into: its oldest and newest stored message, and their number.

    The key needs the right to get from the topic.
    """
    _check(name)
    with naming_default(loaded), Proxies.of(loaded.settings) as proxies:
        proxies.timeout_seconds = patience
        found = read_times(proxies, SENDER, name)
    facts = times_as_json(found)
    most = "" if found.exact else "at most "
    text = f"{name} has no stored messages"
    if found.oldest is not None:
        text = (
            f"{name}: {most}{found.records:,} records, {most}{console.size(found.bytes)}, from {facts['oldest']}"
            f" ({facts['first']}) to {facts['newest']}"
        )
    console.report(as_json, facts, text)


def _check(name: str) -> None:
    if is_service_topic(check_topic(name)):
        raise CallerError(f"{name} belongs to a service, and its calls are not read")
