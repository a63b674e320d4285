"""`pubsub proxy …`: a proxy in the foreground."""

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
    """Run a proxy: the address that clients know."""


@app.command()
@takes_settings(ProxySettings)
def start(loaded: Loaded[ProxySettings], lifeline: Lifeline = None) -> None:
    """Run one proxy until SIGTERM or SIGINT.

    It prints one line when it is ready, with the addresses it listens on.
    """
    from pubsub.proxy.process import run_proxy

    console.end_with_parent(lifeline)
    console.keep_log("proxy", loaded.settings.id)
    run_proxy(loaded.settings)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m proxy ARGV…` from a checkout."""
    return console.run(app, "python -m proxy", argv)
