"""`pubsub client ID seek`, and the option --start of `subscribe`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from pubsub import console
from pubsub.client.inputs import opened_client
from pubsub.client.starts import FORM, describe, parse_start_text
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import takes_settings

if TYPE_CHECKING:
    from pubsub.client import Client
    from pubsub.protocol.names import Start

StartOption = Annotated[
    str | None,
    typer.Option("--start", metavar="START", help=f"Where a new subscription begins: {FORM}. Default: latest."),
]


def subscribe_from(opened: Client, topic: str, text: str | None, *, fresh: bool) -> None:
    """Subscribe, with a start that a user typed."""
    start = None if text is None else parse_start_text(text, time.time(), "--start")
    opened._run(opened._calls.subscribing.intend(topic, True, None, fresh=fresh, start=start))


@takes_settings(ClientSettings)
def seek(
    loaded: Loaded[ClientSettings],
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic to which the client is subscribed.")],
    text: Annotated[str, typer.Option("--start", metavar="START", help=f"First message: {FORM}.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Move the client's subscription to TOPIC: receive its messages again from a start, or pass over some.

    Messages that wait before the start are passed over. From the start on, each message comes once more, also those
    that were taken before. Older messages are there as far as the topic keeps them: pubsub topic set TOPIC keep=7d.

    Example: pubsub client billing seek orders --start -1h.
    """
    start: Start = parse_start_text(text, time.time(), "--start")
    with opened_client(ctx, loaded, topic) as opened:
        opened._look_back.check_held(topic, start)
        replay = opened._run(opened._calls.subscribing.seek(topic, start, None))
    console.report(
        as_json,
        {"client": ctx.obj, "topic": topic, "start": describe(start), "replay": replay},
        f"{ctx.obj} receives {topic} from {describe(start)} on (replay {replay})",
    )
