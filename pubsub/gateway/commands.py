"""`pubsub webhook …`: edits the webhooks of a gateway over HTTP, because the gateway stores them."""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import typer

from pubsub import console
from pubsub.base.environment import is_direct, plain, proxy_refused, trusted
from pubsub.base.plurals import counted
from pubsub.base.urls import mask_logged_urls, masked, scrubbed
from pubsub.console.ages import parse_age
from pubsub.errors import CallerError, ConfigurationError, NotAllowed, NotKnown, PubsubError, Unavailable

if TYPE_CHECKING:
    import httpx2

app = typer.Typer(name="webhook", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

SECONDS: Final = 30.0
"""Time limit for an answer of the gateway."""

BODY_SHOWN: Final = 80
"""Characters of a dead letter's body in the table."""

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the webhook, unique in its topic.")]
At = Annotated[
    str,
    typer.Option(
        "--gateway", metavar="URL", help="URL of the gateway; default: PUBSUB_GATEWAY, or http://127.0.0.1:8080."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def webhook() -> None:
    """Let a gateway POST each message of a topic to a URL.

    If the gateway uses bearer tokens, put yours into the variable PUBSUB_GATEWAY_TOKEN.
    """


@app.command()
def add(
    topic: Topic,
    name: Name,
    url: Annotated[str, typer.Argument(metavar="URL", help="URL that receives the messages.")],
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="whsec_…",
            help="Secret that signs the requests; default: a new one. Give it twice while one replaces the other.",
        ),
    ] = None,
    gateway: At = "",
    as_json: AsJson = False,
) -> None:
    """Make a webhook, or change the URL or secrets of one. A new secret is printed.

    The receiver checks the signature of each request with the secret (docs/how-to/webhooks.md).
    """
    body: dict[str, Any] = {"url": url}
    if secret:
        body["secrets"] = secret
    found = _ask(gateway, "PUT", _path(topic, name), body, wanted="url")
    console.report(as_json, found, found.get("secret") or f"webhook {name} of {topic} goes to {found['url']}")


@app.command("list")
def list_(topic: Topic, gateway: At = "", as_json: AsJson = False) -> None:
    """Show the webhooks of a topic with state, backlog, failures and dead letters."""
    found = _ask(gateway, "GET", f"/topics/{quote(topic, safe='')}/webhooks", wanted="webhooks")
    if as_json:
        console.print_json(found["webhooks"])
        return
    table = console.table(
        "webhook", "url", "state", "waiting", "dead letters", "delivered", "failed", "why", "last failure"
    )
    for one in found["webhooks"]:
        dead_letters = "?" if one["dead_letters"] is None else f"{one['dead_letters']:,}"
        numbers = [f"{one[name]:,}" for name in ("delivered", "failed")]
        last = one["last_failure"]
        why = "" if last is None else f"{_plain(last['error'])}, try {last['attempts']}, {_when(last)}"
        row = (
            one["name"],
            one["url"],
            one["state"],
            f"{one['waiting']:,}",
            dead_letters,
            *numbers,
            _plain(one["reason"]),
        )
        table.add_row(*row, why)
    console.print_table(table)


@app.command("dead-letters")
def dead_letters(
    topic: Topic,
    name: Name,
    after: Annotated[int, typer.Option(min=0, metavar="NUMBER", help="Show letters after this number.")] = 0,
    most: Annotated[
        int, typer.Option("--max", min=1, max=10_000, metavar="N", help="Maximum number of letters.")
    ] = 100,
    gateway: At = "",
    as_json: AsJson = False,
) -> None:
    """Show the messages that a webhook gave up: number of tries, time and error of the last failure, and the body."""
    query = f"max={most}&after={after}&beginnings={'false' if as_json else 'true'}"
    found = _ask(gateway, "GET", f"{_path(topic, name)}/dead-letters?{query}", wanted="dead_letters")
    if as_json:
        console.print_json(found)
        return
    table = console.table("number", "id", "tries", "failed", "error", "bytes", "body")
    for one in found["dead_letters"]:
        row = f"{one['number']}", one["id"], f"{one['attempts']}", _when(one), _plain(one["error"])
        size = f"{one['bytes']:,}" if "bytes" in one else ""
        table.add_row(*row, size, _plain(one.get("body", one.get("body_base64", "")), BODY_SHOWN))
    console.print_table(table)
    if found["next"] is not None:
        typer.echo(f"there are more; to see them: --after {found['next']}")


def _when(failure: dict[str, Any]) -> str:
    """Format the time of a failure in this host's time zone; "" if it was not recorded."""
    at = failure.get("failed_at")
    return "" if at is None else datetime.fromtimestamp(at / 1e6).astimezone().isoformat(" ", "seconds")


def _plain(text: str, most: int = 300) -> str:
    """Return foreign text on one line, without characters that control a terminal."""
    shown = "".join(character if character.isprintable() else f"\\x{ord(character):02x}" for character in text[:most])
    return shown + (" …" if len(text) > most else "")


@app.command()
def remove(topic: Topic, name: Name, gateway: At = "", as_json: AsJson = False) -> None:
    """Delete a webhook; messages that it has not delivered are given up."""
    _ask(gateway, "DELETE", _path(topic, name), wanted="")
    console.report(as_json, {"topic": topic, "removed": name}, f"removed webhook {name} of {topic}")


@app.command()
def redrive(topic: Topic, name: Name, gateway: At = "", as_json: AsJson = False) -> None:
    """Deliver waiting messages at once, and dead letters once more. A webhook in the state ended starts again."""
    found = _ask(gateway, "POST", f"{_path(topic, name)}/redrive", wanted="redriven")
    console.report(as_json, found, f"{found['redriven']:,} messages of {topic} are tried again")


@app.command()
def purge(
    topic: Topic,
    name: Name,
    age: Annotated[str, typer.Argument(metavar="AGE", help="Least age of the letters: 90s, 15m, 2h, 30d.")],
    gateway: At = "",
    as_json: AsJson = False,
) -> None:
    """Drop the dead letters of a webhook that are older than AGE."""
    seconds = parse_age("AGE", age)
    found = _ask(gateway, "DELETE", f"{_path(topic, name)}/dead-letters?age={seconds:.0f}", wanted="purged")
    console.report(as_json, found, f"dropped {counted(found['purged'], 'dead letter')} of {topic}")


@app.command()
def retry(topic: Topic, name: Name, gateway: At = "", as_json: AsJson = False) -> None:
    """Do the same as redrive, under its earlier name."""
    found = _ask(gateway, "POST", f"{_path(topic, name)}/retry", wanted="retried")
    console.report(as_json, found, f"{found['retried']:,} messages of {topic} are tried again")


def _path(topic: str, name: str) -> str:
    return f"/topics/{quote(topic, safe='')}/webhooks/{quote(name, safe='')}"


def _ask(gateway: str, method: str, path: str, body: dict[str, Any] | None = None, *, wanted: str) -> dict[str, Any]:
    """Send a request to the gateway, and return its answer.

    Args:
        gateway: its URL, as given on the command line.
        wanted: a field that each answer of a gateway to this request has; "" if the answer has no body.

    Raises:
        Unavailable: no answer came.
        PubsubError: the gateway refused, with its reason.
    """
    try:
        import httpx2
    except ImportError as error:
        raise ConfigurationError(f"webhooks need pip install '.[http]' in a clone ({error})") from None

    url = gateway or os.environ.get("PUBSUB_GATEWAY") or "http://127.0.0.1:8080"
    shown = masked(url)
    token = os.environ.get("PUBSUB_GATEWAY_TOKEN", "")
    headers = {"authorization": f"Bearer {token}"} if token else {}
    mask_logged_urls()
    try:
        client = _client(url)
    except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
        raise proxy_refused(error) from None
    try:
        with client:
            answer = client.request(method, url.rstrip("/") + path, json=body, headers=headers)
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise ConfigurationError(f"--gateway {shown}: {scrubbed(str(error), url)}") from None
    except httpx2.ReadTimeout:
        silent = "the process there takes the request and does not answer; it is suspended, or is not a gateway"
        raise Unavailable(method, shown, SECONDS, silent) from None
    except httpx2.RemoteProtocolError as error:
        text = f"--gateway {shown}: the process there is not a gateway: {scrubbed(str(error), url)}"
        raise ConfigurationError(text) from None
    except httpx2.HTTPError as error:
        raise Unavailable(method, shown, SECONDS, scrubbed(str(error), url) or type(error).__name__) from None
    try:
        found = answer.json() if answer.content or wanted else {}
    except (ValueError, RecursionError):
        found = None
    if answer.is_success and isinstance(found, dict) and (not wanted or wanted in found):
        return found
    if answer.is_success:
        raise ConfigurationError(f"--gateway {shown}: the process there is not a gateway; check the URL")
    none = f"{shown} answered {answer.status_code} and is not a gateway; check the URL"
    reason = str(found["detail"]) if isinstance(found, dict) and "detail" in found else none
    raise _error(answer.status_code, path, reason)


def _client(url: str) -> httpx2.Client:
    """Return an HTTP client: direct for a gateway on this host, otherwise through the proxy of the environment."""
    import httpx2

    verify = trusted() if url.lower().startswith("https:") else plain()
    return httpx2.Client(timeout=SECONDS, verify=verify, trust_env=not is_direct(url))


def _error(status: int, path: str, reason: str) -> PubsubError:
    if status in {401, 403}:
        return NotAllowed("webhook", path, reason)
    if status == 404:
        return NotKnown(reason)
    if status == 503:
        return Unavailable("webhook", path, SECONDS, reason)
    return CallerError(reason) if status < 500 else PubsubError(reason)
