"""`pubsub proxy …`: runs a proxy in the foreground."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from pubsub import console
from pubsub.config.loading import Loaded
from pubsub.config.settings import ProxySettings
from pubsub.console.options import Lifeline, takes_settings

app = typer.Typer(name="proxy", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.callback()
def proxy() -> None:
    """Run a proxy, which stands between clients and servers.

    Clients connect to proxies. A proxy finds the owner of a topic, the server that stores it.
    """


@app.command()
@takes_settings(ProxySettings)
def start(loaded: Loaded[ProxySettings], lifeline: Lifeline = None) -> None:
    """Run one proxy until SIGTERM or SIGINT.

    When it is ready it prints one line with the addresses that it listens on. Example: pubsub proxy start --id p1
    --dir p1 --bind tcp://127.0.0.1:5601 --servers tcp://127.0.0.1:5602.
    """
    from pubsub.proxy.process import run_proxy

    console.end_with_parent(lifeline)
    console.keep_log("proxy", loaded.settings.id)
    run_proxy(loaded.settings)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m proxy ARGV…` from a checkout, and return the exit code."""
    return console.run(app, "python -m proxy", argv)
