"""What every command on Spark needs: a cluster, a session, how far its query is, and how it is stopped."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import typer

from pubsub.config.settings import ClientSettings
from pubsub.console.options import read
from pubsub.errors import ConfigurationError
from pubsub.protocol.names import check_id
from pubsub.security.opening import expected_keys, own_pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pubsub.spark.pipelines import Place, Totals

TELL_SECONDS: Final = 10.0
"""Between two lines of progress where nobody watches a terminal."""


def where(
    proxies: list[str] | None,
    proxies_file: str | None,
    proxy_keys: list[str] | None,
    client: str,
    key: str | None,
    config: str | None,
    timeout: float,
) -> Place:
    """The cluster that the command line, the environment or the file names, and by whose key it is entered.

    Args:
        client: whose key it is.
        key: its file; None: as the settings say, or the usual one, where there is one.

    Raises:
        ConfigurationError: Spark is not installed, or a setting or a key is not allowed.
    """
    check_installed()
    flags = {"proxies": proxies, "proxies_file": proxies_file, "proxy_keys": proxy_keys, "key_file": key}
    settings = read(ClientSettings, flags, config).settings
    from pubsub.client.storage.places import key_path
    from pubsub.spark.identity import NOBODY, Identity
    from pubsub.spark.pipelines import Place

    check_id("client ID", client)
    file = key_path(client, settings.directory)
    pair = own_pair("client", client, settings.key_file, file)
    expected_keys("client", client, pair, settings.proxies, settings.proxy_keys)
    identity = NOBODY
    if pair is not None:
        path = os.path.abspath(settings.key_file or file)
        identity = Identity(client=client, key_file=path, proxy_keys=settings.proxy_keys)
    return Place(proxies=settings.proxies, timeout=timeout, identity=identity)


def taking_over(place: Place, take_over: bool) -> Place:
    """The same place, for a pipeline that goes on under a name which belongs to another checkpoint, or does not."""
    return replace(place, take_over=take_over)


def check_installed() -> None:
    """See that Spark is installed, and Arrow.

    Raises:
        ConfigurationError: it is not.
    """
    for module in ("pyspark", "pyarrow"):
        if find_spec(module) is None:
            raise ConfigurationError(
                f"pipelines need {module}, which is not installed: pip install '.[spark]' in a clone"
            )


def spark_settings(master: str, conf: list[str] | None) -> dict[str, str]:
    """Settings of Spark by their names.

    Raises:
        ConfigurationError: one is none, or Spark cannot be started.
    """
    settings = {}
    for text in conf or []:
        key, sign, value = text.partition("=")
        if not sign or not key.startswith("spark."):
            raise ConfigurationError(f"--conf {text}: it is spark.NAME=VALUE")
        settings[key] = value
    from pubsub.spark.session import check

    check(master)
    return settings


@contextmanager
def session(master: str, settings: dict[str, str]) -> Iterator[SparkSession]:
    """Spark, for the time of a `with` block; what it complains of in there is one sentence.

    Raises:
        ConfigurationError: a setting is none.
        PubsubError: the query failed.
    """
    from pubsub.spark.pipelines import running

    with running(master, settings) as spark:
        yield spark


@contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """Whether SIGTERM came, which ends a query after the request that it is at."""
    came: list[int] = []
    try:
        before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    except ValueError:  # Not the main thread: signals are somebody else's.
        yield lambda: False
        return
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def progress(word: str) -> Iterator[Callable[[Totals], None]]:
    """A function that shows on stderr how far a query is: a line that is redrawn, or now and then a new one."""
    from rich.console import Console

    screen = Console(file=sys.stderr, highlight=False)
    if screen.is_terminal:
        with screen.status(f"{word}: starting Spark") as status:
            yield lambda totals: status.update(f"{word}: {sentence(totals)}")
        return
    told = time.monotonic()

    def tell(totals: Totals) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL_SECONDS:
            told = time.monotonic()
            typer.echo(f"{word}: {sentence(totals)}", err=True)

    yield tell


def sentence(totals: Totals) -> str:
    """What a run did, for a person."""
    rate = totals.messages / totals.seconds if totals.seconds else 0.0
    return f"{totals.messages:,} messages in {totals.batches:,} batches, {totals.seconds:.1f} s, {rate:,.0f}/s,"


def figures(totals: Totals) -> dict[str, Any]:
    """What a run did, for JSON."""
    return {"messages": totals.messages, "batches": totals.batches, "seconds": round(totals.seconds, 3)}
