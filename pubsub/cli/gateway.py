"""`pubsub gateway …`: runs the HTTP gateway and makes its tokens."""

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
"""Time limit for each process when the cluster is asked for its report."""

AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="NAME",
        envvar="PUBSUB_GATEWAY_ALLOW_HOST",
        help="Accept requests with this name in their Host header, in addition to localhost and the host of --bind."
        " Repeat it for more names; * accepts any.",
    ),
]
AllowOrigin = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-origin",
        metavar="ORIGIN",
        envvar="PUBSUB_GATEWAY_ALLOW_ORIGIN",
        help="Accept requests from web pages of this site, such as https://app.example.org. Repeat it for more sites.",
    ),
]


@app.callback()
def gateway() -> None:
    """Run a gateway, which offers topics over HTTP."""


Tokens = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with users, digests of their bearer tokens, and rights. Without it anyone may do everything.",
    ),
]


@app.command()
@takes_settings(ClientSettings, REACHING | {"timeout_seconds", "power_safe"})
def start(
    loaded: Loaded[ClientSettings],
    bind: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 takes a free one.")
    ] = "127.0.0.1:8080",
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="State directory; one gateway at a time may use it.")
    ] = Path("gateway"),
    tokens: Tokens = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen without tokens on an address that other hosts can reach.")
    ] = False,
    certificate: Annotated[
        Path | None,
        typer.Option("--tls-certificate", metavar="FILE", help="PEM file with the certificate; turns on HTTPS."),
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="PEM file with the private key of the certificate.")
    ] = None,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    lifeline: Lifeline = None,
) -> None:
    """Run one gateway until SIGTERM or SIGINT.

    When it is ready it prints one line with its URL. The lines of the file for --tokens come from pubsub gateway
    token.
    """
    from pubsub.cli.gateway_operations import ClusterOperations
    from pubsub.cli.looking_back import ClusterReads
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

    report = partial(gather, loaded.settings, REPORT_SECONDS)
    keys = directory / "keys"
    operations, peek = ClusterOperations(loaded, keys), ClusterPeek(loaded.settings, keys)
    run_gateway(settings, loaded.settings, report, operations, peek, ClusterReads(loaded.settings, keys), _ready)


@app.command()
def token(
    user: Annotated[str, typer.Argument(metavar="USER", help="Name of the user: 1-24 of A-Z a-z 0-9 _ -")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a bearer token for a user, and print it with a line for the token file.

    The first line is the secret token: give it to the user. The second line holds only its digest and the user's
    rights: add it to the file of pubsub gateway start --tokens. The printed rights, put=* get=*, allow every topic;
    narrow them as needed.
    """
    from pubsub.web.tokens import digest, new_token, parse_users

    made = new_token()
    line = f"{user}  th_{digest(made)}"
    parse_users([line], "this user")
    facts = {"user": user, "token": made, "line": line}
    console.report(as_json, facts, f"{made}\n{line}  put=* get=*")


def _ready(url: str) -> None:
    console.announce(f"gateway ready: {url}")
