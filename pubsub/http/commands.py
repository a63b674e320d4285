"""`pubsub http …`: sends reliable HTTP requests from a shell, and runs a receiver that stores requests as files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pubsub import console
from pubsub.config.locations import state_directory
from pubsub.console.options import OldDirectory, one_directory
from pubsub.errors import CallerError, NotKnown, StorageError
from pubsub.http.errors import RequestKept

if TYPE_CHECKING:
    from pubsub.http.blocking import ReliableHttp
    from pubsub.http.core.outgoing import Outgoing
    from pubsub.http.storage.journal import Journal

app = typer.Typer(name="http", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

Url = Annotated[
    str, typer.Argument(metavar="URL", help="Address of the receiver: http://HOST/PATH or https://HOST/PATH.")
]
File = Annotated[Path, typer.Argument(metavar="FILE", help="File with the body of the request; - is standard input.")]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir", metavar="DIR", help="State directory of the requests; default: in the user's data directory."
    ),
]
Key = Annotated[
    str, typer.Option("--key", metavar="KEY", help="Idempotency key: a second command with it is the same request.")
]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="Header of the request; may be repeated."),
]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="File with the bearer token for the receiver.")
]
Ca = Annotated[Path | None, typer.Option("--ca", metavar="FILE", help="PEM file: trust only these certificates.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0,
        metavar="SECONDS",
        help="End after this time and keep the request; default: wait until --expiry.",
    ),
]
Expiry = Annotated[
    float | None,
    typer.Option(
        "--expiry", min=1, metavar="SECONDS", help="Age at which the request is given up; default 604800, a week."
    ),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Listen without tokens on an address that other hosts can reach.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_SHOWN: Final = ("id", "kind", "method", "url", "state", "attempts", "problem")
_FAILED: Final = ("key", "client", "method", "path", "attempts", "problem")


@app.callback()
def http() -> None:
    """Send or receive HTTP requests that happen once.

    They happen once even if processes are killed. A command stores its request in DIR before it sends it. If no answer
    comes in time, the request stays there: pubsub http resume continues it, and pubsub http list shows it.
    """


@app.command()
def put(
    url: Url, file: File, directory: Directory = None, key: Key = "", header: Header = None,
    token_file: TokenFile = None, ca: Ca = None, timeout: Timeout = None, expiry: Expiry = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """PUT a file to a URL and print the response.

    Exit code 5: no answer within --timeout; the request is kept, and pubsub http resume continues it.
    """
    with _opened(directory, token_file, ca, expiry) as opened:
        answer = _interruptible(
            lambda: opened.put(url, _body(file), key=key, headers=_headers(header), timeout=timeout)
        )
    _print_answer(answer, as_json)


@app.command()
def send(
    url: Url, file: File, directory: Directory = None, key: Key = "", header: Header = None,
    token_file: TokenFile = None, ca: Ca = None, timeout: Timeout = None, expiry: Expiry = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """POST a file to a URL as a message, and return when the receiver has stored it.

    Exit code 5: no answer within --timeout; the request is kept, and pubsub http resume continues it.
    """
    with _opened(directory, token_file, ca, expiry) as opened:
        _interruptible(lambda: opened.send(url, _body(file), key=key, headers=_headers(header), timeout=timeout))
    if as_json:
        console.print_json({"url": url, "acknowledged": True})


@app.command()
def job(
    url: Url, file: File,
    local: Annotated[str, typer.Option("--local", metavar="URL", help="URL on this host that receives the result.")],
    directory: Directory = None, key: Key = "", header: Header = None, token_file: TokenFile = None, ca: Ca = None,
    timeout: Timeout = None, expiry: Expiry = None, insecure: Insecure = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """POST a file to a URL as a job, wait for its result, and print it.

    The command listens at the --local URL, and the receiver sends the result there. Exit code 5: no result within
    --timeout; the job is kept, and pubsub http resume continues it.
    """
    with _opened(directory, token_file, ca, expiry, insecure=insecure) as opened:
        headers = _headers(header)
        answer = _interruptible(
            lambda: opened.perform_job(url, local, _body(file), key=key, headers=headers, timeout=timeout)
        )
    _print_answer(answer, as_json)


@app.command("list")
def list_(
    directory: Directory = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also show settled requests, until their records expire.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the open requests; nothing is sent."""
    check_installed()
    from pubsub.http.storage import outbox
    from pubsub.http.storage.journal import Journal, OwnFile

    journal = Journal(OwnFile(_existing(directory), ""))
    try:
        with journal.transaction() as transaction:
            found = outbox.every(transaction, open_only=not every)
    finally:
        journal.close()
    _print_requests(found, as_json)


@app.command()
def resume(
    directory: Directory = None, token_file: TokenFile = None, ca: Ca = None, timeout: Timeout = None,
    insecure: Insecure = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Continue all open requests until they are settled.

    Exit code 5: a request is still open after --timeout.
    """
    from pubsub.http.checking import failure

    with _opened(_existing(directory), token_file, ca, None, insecure=insecure) as opened:
        found = _interruptible(lambda: opened.resume(timeout))
        place = str(opened.directory)
    _print_requests(found, as_json)
    left = [request for request in found if not request.over]
    if left:
        first = left[0]
        raise RequestKept(first.id, first.url, timeout or 0.0, first.problem, place)
    for request in found:
        if (error := failure(request)) is not None:
            raise error


@app.command()
def forget(
    request: Annotated[str, typer.Argument(metavar="ID", help="ID of the request, as pubsub http list shows it.")],
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Give a request up: it is not sent again, and its effect at the receiver is unknown."""
    check_installed()
    from pubsub.http.storage import outbox
    from pubsub.http.storage.journal import Journal, OwnFile

    journal = Journal(OwnFile(_existing(directory), ""))
    try:
        with journal.transaction() as transaction:
            removed = outbox.remove(transaction, request)
    finally:
        journal.close()
    if not removed:
        raise NotKnown(f"there is no request {request} in {directory or _default()}")
    console.report(as_json, {"forgotten": request}, f"{request} is forgotten")


@app.command()
def failed(directory: Directory = None, as_json: AsJson = False) -> None:
    """Show requests that a receiver gave up because their handler failed too often; stop the receiver first."""
    check_installed()
    from pubsub.http.core.incoming import Standing
    from pubsub.http.storage import inbox

    with _journal(_existing(directory)) as journal, journal.transaction() as transaction:
        found = [one for one in inbox.every(transaction, open_only=True) if one.standing is Standing.FAILED]
    rows = [[one.key, one.owner, one.method, one.path, one.attempts, one.problem] for one in found]
    if as_json:
        for row in rows:
            console.print_json(dict(zip(_FAILED, row, strict=True)))
    elif rows:
        table = console.table(*_FAILED)
        for row in rows:
            table.add_row(*map(str, row))
        console.print_table(table)
    else:
        sys.stdout.write("nothing has failed\n")


@app.command()
def retry(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the request, as pubsub http failed shows it.")],
    client: Annotated[str, typer.Option("--client", metavar="NAME", help="Name of the sender in the token file.")] = "",
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Handle a given-up request again, with all attempts, when the receiver starts next. Stop the receiver first."""
    check_installed()
    from random import Random

    from pubsub.http.receiving import Receiving
    from pubsub.http.sending import Sending
    from pubsub.http.settings import HttpSettings

    place, settings = _existing(directory), HttpSettings()
    with _journal(place) as journal:
        sending = Sending(journal, settings, Random())
        found = Receiving(journal, settings, Random(), sending).again((client, key))
    if not found:
        raise NotKnown(f"no put or message {key}{f' of {client}' if client else ''} was given up in {place}")
    console.report(as_json, {"retried": key}, f"{key} is handled again when the receiver starts")


@contextmanager
def _journal(place: Path) -> Iterator[Journal]:
    from pubsub.http.storage.journal import Journal, OwnFile

    # A receiver's journal: time while the machine is off must not make records of settled requests expire.
    journal = Journal(OwnFile(place, ""), counts_boots=False)
    try:
        yield journal
    finally:
        journal.close()


@app.command()
def serve(
    old_form: OldDirectory = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="State directory of the receiver.")
    ] = None,
    bind: Annotated[str, typer.Option("--bind", metavar="HOST:PORT", help="Address to listen on.")] = "127.0.0.1:8080",
    tokens: Annotated[
        Path | None,
        typer.Option(
            "--tokens",
            metavar="FILE",
            help="File of accepted bearer tokens, NAME th_SHA256 on each line; see pubsub gateway token.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--tls-certificate", metavar="FILE", help="PEM file with the certificate; turns on HTTPS."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--tls-key", metavar="FILE", help="PEM file with the private key, if it is not in the certificate's file."
        ),
    ] = None,
    insecure: Insecure = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="Without tokens: accept this name in a Host header; may be repeated, * accepts any.",
        ),
    ] = None,
) -> None:
    """Receive PUTs, messages and jobs, and store each body once as a file in DIR/arrived, until SIGTERM or SIGINT."""
    check_installed()
    from pubsub.http.filing import run

    place = one_directory(directory, old_form)
    run(place, bind, tokens, certificate, key, insecure=insecure, allow_hosts=tuple(allow_host or ()))


def check_installed() -> None:
    """Check that the extra `http` is installed.

    Raises:
        ConfigurationError: a module is missing.
    """
    from importlib.util import find_spec

    from pubsub.errors import ConfigurationError

    for module in ("httpx2", "starlette", "uvicorn"):
        if find_spec(module) is None:
            raise ConfigurationError(
                f"reliable HTTP needs {module}, which is not installed: pip install '.[http]' in a clone"
            )


def _default() -> Path:
    return state_directory("http", "default")


def _existing(directory: Path | None) -> Path:
    """Return the directory if it has a journal, because a command that only reads must not make one.

    Raises:
        StorageError: there is no journal.
    """
    found = directory or _default()
    if not (found / "http.db").exists():
        raise StorageError(
            str(found), "this directory has no HTTP requests; give the directory of the requests with --dir"
        )
    return found


@contextmanager
def _opened(
    directory: Path | None, token_file: Path | None, ca: Path | None, expiry: float | None, *, insecure: bool = False
) -> Iterator[ReliableHttp]:
    check_installed()
    from pubsub.http.blocking import ReliableHttp
    from pubsub.http.settings import HttpSettings
    from pubsub.web.tokens import read_token

    token = read_token(token_file) if token_file is not None else ""
    settings = HttpSettings()
    if expiry is not None:
        settings = HttpSettings(expiry_seconds=expiry, tombstone_seconds=max(2 * expiry, settings.tombstone_seconds))
    opened = ReliableHttp(directory or _default(), token=token, settings=settings, verify=_trust(ca), insecure=insecure)
    with opened:
        yield opened


def _trust(ca: Path | None) -> Any:
    if ca is None:
        return True
    from pubsub.base.environment import trusted

    return trusted(ca)


def _interruptible(call: Callable[[], Any]) -> Any:
    """Make a call; on Ctrl-C print the request's state, and end."""
    try:
        return call()
    except KeyboardInterrupt as error:
        for note in getattr(error, "__notes__", ()):
            console.note(f"interrupted: {note}")
        raise


def _body(file: Path) -> bytes:
    from pubsub.http.settings import HttpSettings

    most = (
        HttpSettings().body_bytes_max + 1
    )  # Read one byte more than allowed, so that the sender rejects the body as too large.
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(most)
        with file.open("rb") as opened:
            return opened.read(most)
    except OSError as error:
        raise CallerError(f"{file} cannot be read: {error.strerror}") from None


def _headers(given: list[str] | None) -> dict[str, str]:
    found = {}
    for line in given or ():
        name, colon, value = line.partition(":")
        if not colon:
            raise CallerError(f"--header {line!r} is not of the form 'NAME: VALUE'")
        found[name.strip()] = value.strip()
    return found


def _print_answer(answer: Any, as_json: bool) -> None:
    if not as_json:
        sys.stdout.flush()
        sys.stdout.buffer.write(answer.body)
        return
    import base64

    try:
        body = {"body": answer.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(answer.body).decode()}
    console.print_json({"status": answer.status, "headers": dict(answer.headers), **body})


def _print_requests(found: list[Outgoing], as_json: bool) -> None:
    if as_json:
        for request in found:
            facts = {name: getattr(request, name) for name in _SHOWN}
            console.print_json({**facts, "status": request.answer.status if request.answer else None})
        return
    if not found:
        sys.stdout.write("nothing is open\n")
        return
    table = console.table(*_SHOWN)
    for request in found:
        table.add_row(*[str(getattr(request, name)) for name in _SHOWN])
    console.print_table(table)
