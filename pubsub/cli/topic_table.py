"""`pubsub topic table`: the last message of each key of a topic."""

from __future__ import annotations

import base64
import json
import sys
from typing import Annotated, Any

import typer

from pubsub.cli.operating import SENDER
from pubsub.client.requests import Proxies
from pubsub.client.tables import read_table
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import REACHING, naming_default, takes_settings
from pubsub.errors import CallerError, NotKnown
from pubsub.protocol.names import check_topic, is_service_topic


@takes_settings(ClientSettings, REACHING)
def table(
    loaded: Loaded[ClientSettings],
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="Print the value of this key alone.")] = None,
    patience: Annotated[
        float, typer.Option("--patience", min=0.05, max=600, metavar="SECONDS", help="Time limit for each answer.")
    ] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print each key as one line of JSON.")] = False,
) -> None:
    """Print the last message of each key of a topic, in the order of the keys.

    Nothing is acknowledged, and no subscription is needed. A key whose last message is empty is deleted. So is
    a key if the time to live of its last message is over. The caller's key needs the right to get from the topic.
    Without --json each line is a key, a tab and the message. With KEY only the message is printed, unchanged.

    Example: pubsub topic table prices EUR.
    """
    if is_service_topic(check_topic(name)):
        raise CallerError(f"{name} belongs to a service, and its topics have no table")
    with naming_default(loaded), Proxies.of(loaded.settings) as proxies:
        proxies.timeout_seconds = patience
        values = read_table(proxies, SENDER, name).values
    wanted = sorted(values) if key is None else [key.encode()]
    out = sys.stdout.buffer
    for one in wanted:
        if one not in values:
            raise NotKnown(f"topic {name} has no value of {key!r}; pubsub topic table {name} lists the keys")
        if as_json:
            facts = _field("key", one) | {"stamp": values[one].stamp} | _field("body", values[one].body)
            out.write(json.dumps(facts, ensure_ascii=False).encode() + b"\n")
        elif key is not None:
            body = values[one].body
            out.write(body + (b"" if body.endswith(b"\n") else b"\n"))
        else:
            out.write(one + b"\t" + values[one].body + b"\n")
    out.flush()


def _field(name: str, value: bytes) -> dict[str, Any]:
    """Return a field of JSON; bytes that are not text get the name `NAME_base64`."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
