"""`pubsub gateway …`: topics over HTTP."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from pubsub import console
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import REACHING, Lifeline, takes_settings

app = typer.Typer(name="gateway", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

REPORT_SECONDS: Final = 2.0
"""Patience with each process when the cluster is asked for its report."""

AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="NAME",
        envvar="PUBSUB_GATEWAY_ALLOW_HOST",
        help="A name that it is asked for by, besides localhost and the one it is bound to; *: any.",
    ),
]
AllowOrigin = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-origin",
        metavar="ORIGIN",
        envvar="PUBSUB_GATEWAY_ALLOW_ORIGIN",
        help="A site whose pages may ask, as https://app.example.org.",
    ),
]


@app.callback()
def gateway() -> None:
    """Run a gateway: topics for every language that speaks HTTP."""


@app.command()
@takes_settings(ClientSettings, REACHING | {"timeout_seconds", "power_safe"})
def start(
    loaded: Loaded[ClientSettings],
    bind: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen.")] = "127.0.0.1:8080",
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where its state lives; one gateway at a time.")
    ] = Path("gateway"),
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Who may do what, by bearer token; else everybody everything.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen without tokens where others than this host reach it.")
    ] = False,
    certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", metavar="FILE", help="PEM file: speak https.")
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="PEM file of the certificate's key.")
    ] = None,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    lifeline: Lifeline = None,
) -> None:
    """Run one gateway until SIGTERM or SIGINT.

    It prints one line when it is ready, with its URL.
    """
    from pubsub.cli.gateway_operations import ClusterOperations
    from pubsub.cli.peeking import ClusterPeek
    from pubsub.cli.reports import gather
    from pubsub.errors import ConfigurationError

    try:
        from pubsub.gateway.process import GatewaySettings, run_gateway
    except ImportError as error:
        raise ConfigurationError(f"the gateway needs pip install '.[http]' in a clone ({error})") from None

    console.end_with_parent(lifeline)
    console.keep_log("gateway", bind)
    allowed = tuple(allow_host or ()), tuple(allow_origin or ())
    settings = GatewaySettings(bind, directory, tokens, insecure, certificate, private_key, *allowed)

    def ready(url: str) -> None:
        console.announce(f"gateway ready: {url}")

    report = partial(gather, loaded.settings, REPORT_SECONDS)
    peek = ClusterPeek(loaded.settings, directory / "keys")
    run_gateway(settings, loaded.settings, report, ClusterOperations(loaded), peek, ready)


@app.command()
def token(
    user: Annotated[str, typer.Argument(metavar="USER", help="Whose: 1-24 of A-Z a-z 0-9 _ -")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a bearer token; print it, and the line for the file of tokens, which does not hold it."""
    from pubsub.web.tokens import digest, new_token, parse_users

    made = new_token()
    line = f"{user}  th_{digest(made)}"
    parse_users([line], "this user")
    facts = {"user": user, "token": made, "line": line}
    console.report(as_json, facts, f"{made}\n{line}  put=* get=*")
