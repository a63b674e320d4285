"""Shared by the Spark commands: the cluster, the Spark session, progress and stopping."""

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
from pubsub.security.process_keys import expected_keys, own_pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pubsub.spark.pipelines import Place, Totals

TELL_SECONDS: Final = 10.0
"""Interval of progress lines if stderr is not a terminal."""


def where(
    proxies: list[str] | None,
    proxies_file: str | None,
    proxy_keys: list[str] | None,
    client: str,
    key: str | None,
    config: str | None,
    timeout: float,
) -> Place:
    """Return the cluster that the command line, the environment or the configuration file names, and the key to use.

    Args:
        client: client ID of the key.
        key: its file; None uses the settings, or the client's usual key file if that exists.

    Raises:
        ConfigurationError: Spark is not installed, or a setting or a key is not valid.
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
    """Return the same place, with or without permission to use a name of another checkpoint."""
    return replace(place, take_over=take_over)


def check_installed() -> None:
    """Check that Spark and Arrow are installed.

    Raises:
        ConfigurationError: a module is missing.
    """
    for module in ("pyspark", "pyarrow"):
        if find_spec(module) is None:
            raise ConfigurationError(
                f"pipelines need {module}, which is not installed: pip install '.[spark]' in a clone"
            )


def spark_settings(master: str, conf: list[str] | None) -> dict[str, str]:
    """Parse the settings of Spark, and check that Spark can start.

    Raises:
        ConfigurationError: a setting is not valid, or Spark cannot be started.
    """
    settings = {}
    for text in conf or []:
        key, sign, value = text.partition("=")
        if not sign or not key.startswith("spark."):
            raise ConfigurationError(f"--conf {text}: give a setting as spark.NAME=VALUE")
        settings[key] = value
    from pubsub.spark.session import check

    check(master)
    return settings


@contextmanager
def session(master: str, settings: dict[str, str]) -> Iterator[SparkSession]:
    """Run Spark for the time of a `with` block, and turn its errors into one sentence.

    Raises:
        ConfigurationError: a setting is not valid.
        PubsubError: the query failed.
    """
    from pubsub.spark.pipelines import running

    with running(master, settings) as spark:
        yield spark


@contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after SIGTERM; the query then ends after the present request."""
    came: list[int] = []
    try:
        before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    except ValueError:  # Only the main thread may set signal handlers.
        yield lambda: False
        return
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def progress(word: str) -> Iterator[Callable[[Totals], None]]:
    """Yield a function that shows a query's progress on stderr: one redrawn line on a terminal, otherwise a line now
    and then.
    """
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
    """Return the results of a run as a sentence."""
    rate = totals.messages / totals.seconds if totals.seconds else 0.0
    return f"{totals.messages:,} messages in {totals.batches:,} batches, {totals.seconds:.1f} s, {rate:,.0f}/s,"


def figures(totals: Totals) -> dict[str, Any]:
    """Return the results of a run for JSON."""
    return {"messages": totals.messages, "batches": totals.batches, "seconds": round(totals.seconds, 3)}


def checkpoint_of(given: str, directory: str, name: str, master: str) -> str:
    """Return where Spark keeps the progress: by default in the target directory, otherwise in the user's data.

    Raises:
        ConfigurationError: other machines than this one need it, and none is given.
    """
    from pubsub.spark.pipelines import complete_path

    if given:
        return complete_path(given)
    if directory:
        return f"{directory}/_checkpoint"
    if not master.startswith("local"):
        raise ConfigurationError(
            f"with master {master} give --checkpoint DIR, a directory that all of its machines can reach"
        )
    from pubsub.config.locations import state_directory

    return str(state_directory("pipeline", name))
