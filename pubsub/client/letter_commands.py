"""`pubsub client ID dead-letters`: list, redrive and drop dead letters, also beside the running client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pubsub import console
from pubsub.base.plurals import counted
from pubsub.client.inputs import opened_client
from pubsub.client.message_fields import body_fields, metadata_fields
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.ages import is_age, parse_age
from pubsub.console.options import takes_settings
from pubsub.errors import CallerError, PubsubError, StoreInUse

if TYPE_CHECKING:
    from pubsub.client import DeadLetter

BODY_SHOWN_BYTES: Final = 200
"""Bytes of a dead letter's body in the table; --bodies and --json have the complete body."""

_LETTER: Final = ("topic", "first", "last", "publisher", "counter", "stamp", "error", "attempts", "at")

Settings = Loaded[ClientSettings]


class _Answered(PubsubError):
    """The error that the running client answered.

    Attributes:
        exit_code: that of the client's own error.
    """

    def __init__(self, text: str, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(text)


def dead_letters(
    loaded: Settings,
    ctx: typer.Context,
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Only letters of this topic; default: all.")
    ] = None,
    bodies: Annotated[
        bool, typer.Option("--bodies", help=f"Show each complete body, not only its first {BODY_SHOWN_BYTES} bytes.")
    ] = False,
    redrive: Annotated[
        list[str] | None,
        typer.Option(
            "--redrive", metavar="ID|all", help="Hand this letter to its handler again; all: each. May be repeated."
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="With --redrive: put the letters to TOPIC instead.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="With --redrive: only letters since then: an age such as 2h, or 2026-11-01T00:00Z.",
        ),
    ] = None,
    purge: Annotated[
        str | None, typer.Option("--purge", metavar="AGE", help="Drop the letters that are older, such as 30d.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List messages that were lost, or that a handler failed on; redrive or drop them.

    Such a message is a dead letter: the client keeps it with the error. A message that a handler failed on becomes one
    after --handler-attempts attempts, or at once if the handler rejects it.

    --redrive takes the ID in the column first. The message goes to the handler of this client again, with no attempts
    counted. With --to, it is put to TOPIC, where every subscriber gets it. Each letter leaves the list in the same
    commit. A lost range cannot be redriven. Beside the running client, that one carries the change out, in process.

    Example: pubsub client billing dead-letters orders --redrive all --since 2h.
    """
    request = _request(topic, redrive, to, since, purge)
    if request is None:
        _list(_letters(ctx, loaded, topic), bodies=bodies, as_json=as_json)
        return
    done = _changed(ctx, loaded, topic, request)
    word = "purged" if "purge" in request else "redriven"
    console.report(as_json, {"client": ctx.obj, word: done}, f"{word} {counted(done, 'dead letter')} of {ctx.obj}")


def _request(
    topic: str | None, redrive: list[str] | None, to: str | None, since: str | None, purge: str | None
) -> dict[str, Any] | None:
    """Return the change that the options ask for; None: they ask for a list."""
    if purge is not None and (redrive or to or since):
        raise CallerError("--purge goes with neither --redrive, --to nor --since; use two commands")
    if (to or since) and not redrive:
        raise CallerError("--to and --since go with --redrive, such as --redrive all")
    if purge is not None:
        return {"purge": parse_age("--purge", purge), "topic": topic}
    if not redrive:
        return None
    if "all" in redrive and len(redrive) > 1:
        raise CallerError("--redrive all stands alone; or name single letters")
    which: str | list[str] = "all" if redrive == ["all"] else redrive
    return {"redrive": which, "topic": topic, "to": to, "since": None if since is None else _time(since)}


def _time(text: str) -> float:
    if is_age(text):
        return (datetime.now(UTC) - timedelta(seconds=parse_age("--since", text))).timestamp()
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = datetime.min
    if found.tzinfo is None:
        raise CallerError(
            f"--since is an age such as 2h, or a time with its zone such as 2026-11-01T00:00Z, not {text!r:.80}"
        )
    return found.timestamp()


def _changed(ctx: typer.Context, loaded: Settings, topic: str | None, request: dict[str, Any]) -> int:
    """Carry a change out, here or in the process that runs the client; return the number of letters."""
    try:
        with opened_client(ctx, loaded, topic) as opened:
            if "purge" in request:
                return opened.purge_dead_letters(timedelta(seconds=request["purge"]), topic=topic)
            since, to = request["since"], request["to"]
            when = None if since is None else datetime.fromtimestamp(since, UTC)
            done = opened.redrive(request["redrive"], topic=topic, since=when, to=to)
            if to is not None:
                opened.flush()
            return done
    except StoreInUse as error:
        return _asked(ctx, loaded, request, error)


def _asked(ctx: typer.Context, loaded: Settings, request: dict[str, Any], in_use: StoreInUse) -> int:
    from pubsub.client.storage.letter_requests import ANSWER_SECONDS, ask
    from pubsub.client.storage.places import state_path

    if loaded.settings.database is not None:
        in_use.remedy = "; a client with its state in a database takes no requests of commands: stop it first"
        raise in_use
    found = ask(state_path(ctx.obj, loaded.settings.directory), request)
    if found is None:
        in_use.remedy = (
            f"; it took the request up in no call of process for {ANSWER_SECONDS:g} s, so nothing happened: "
            "repeat the command while it processes, or stop it first"
        )
        raise in_use
    if "error" in found:
        raise _Answered(found["error"], found.get("exit_code", 1))
    return int(found["done"])


def _letters(ctx: typer.Context, loaded: Settings, topic: str | None) -> list[DeadLetter]:
    """Return the dead letters; from a copy of the state if another process uses the client."""
    from pubsub.client.dead_letters import dead_letters_in
    from pubsub.client.looking import reading_of

    try:
        with opened_client(ctx, loaded, topic) as opened:
            return opened.dead_letters(topic)
    except StoreInUse:
        with reading_of(ctx.obj, loaded.settings) as found:
            return dead_letters_in(found, topic)


def _list(letters: list[DeadLetter], *, bodies: bool, as_json: bool) -> None:
    if as_json:
        console.print_json(
            [
                body_fields(letter.body)
                | metadata_fields(letter.key, letter.headers)
                | {f: getattr(letter, f) for f in _LETTER}
                for letter in letters
            ]
        )
        return
    table = console.table("topic", "first", "last", "publisher", "attempts", "error", "body")
    for letter in letters:
        shown = letter.body if bodies else (letter.body or b"")[:BODY_SHOWN_BYTES]
        body = (shown or b"").decode("utf-8", "replace")
        row = (letter.topic, letter.first, letter.last, letter.publisher, str(letter.attempts), letter.error, body)
        table.add_row(*row)
    console.print_table(table)


def add_to(app: typer.Typer) -> None:
    """Add the command to `pubsub client ID`."""
    app.command("dead-letters")(takes_settings(ClientSettings)(dead_letters))
