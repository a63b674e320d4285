"""`pubsub client ID call|replies|serve`: services from a shell (docs/clients.md, *Calls that happen once*)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pubsub import console
from pubsub.base.children import end, started
from pubsub.base.limits import SERVICE_PARTS_MAX
from pubsub.client.facts import body_facts
from pubsub.client.inputs import HeaderOption, KeyOption, headers_of, message_of, opened_client, readable, source
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import takes_settings
from pubsub.errors import CallerError

if TYPE_CHECKING:
    from pubsub.client import CallState, Reply, Request, Transaction

Settings = Loaded[ClientSettings]
Service = Annotated[str, typer.Argument(metavar="SERVICE", help="Its name: 1-64 of A-Z a-z 0-9 . _ -")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Parts = Annotated[
    int, typer.Option(min=1, max=SERVICE_PARTS_MAX, metavar="N", help="Workers that share the calls by their keys.")
]
Part = Annotated[int, typer.Option(min=0, metavar="K", help="Which of the parts this worker serves, from 0.")]
Wait = Annotated[
    float | None, typer.Option(min=0, max=1e9, metavar="SECONDS", help="For the reply; without it the time-out.")
]
Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- COMMAND…]", help="Gets a request on its stdin, prints the reply; without it an echo."),
]

HandlerTimeout = Annotated[
    float | None,
    typer.Option("--handler-timeout", min=0.001, max=1e9, metavar="SECONDS", help="COMMAND is killed after them."),
]

SAID_BYTES: Final = 300
"""Of what a command that failed has said, in its error reply."""

LOOK_SECONDS: Final = 0.1
"""While a command runs it is looked so often whether signals came."""


def call(
    loaded: Settings,
    ctx: typer.Context,
    service: Service,
    body: Annotated[str, typer.Argument(metavar="BODY", help="The request; - is standard input, @PATH a file.")],
    call_id: Annotated[
        str | None,
        typer.Option("--id", metavar="CALL", help="Its ID; made again under it, it is the same call."),
    ] = None,
    wait: Wait = None,
    deadline: Annotated[
        float | None, typer.Option(min=0, max=1e9, metavar="SECONDS", help="After them no worker begins it.")
    ] = None,
    parts: Parts = 1,
    header: HeaderOption = None,
    message_key: KeyOption = "",
    as_json: AsJson = False,
) -> None:
    """Have SERVICE do something once; its reply goes to standard output.

    Exit code 30: no reply in time. The call goes on, once: `replies CALL` waits for its reply, and so does the same
    command with the same --id. 31: the handler failed; 32: the deadline had passed.
    """
    from pubsub.client.core.calling import check_own_headers, check_service

    check_service(service)
    key, headers = os.fsencode(message_key), headers_of(header)
    check_own_headers(headers)
    content = os.fsencode(body)
    if body == "-" or body.startswith("@"):
        path = Path(body.removeprefix("@"))
        with source(path) as stream, readable(path):
            content = message_of(stream)
    with opened_client(ctx, loaded, new=True) as client:
        reply = client.call(
            service, content, timeout=wait, id=call_id, key=key, headers=headers, deadline=deadline, parts=parts
        )
        _show(reply, as_json)


def _show(reply: Reply, as_json: bool) -> None:
    if as_json:
        console.print_json({"call": reply.id, "service": reply.service} | body_facts(reply.body))
        return
    stream = typer.get_binary_stream("stdout")
    stream.write(reply.body)
    stream.flush()


def replies(
    loaded: Settings,
    ctx: typer.Context,
    call_id: Annotated[str | None, typer.Argument(metavar="[CALL]", help="Without it: which calls are kept.")] = None,
    wait: Wait = None,
    forget: Annotated[bool, typer.Option("--forget", help="Keep the call CALL no more.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the reply to a call, however long ago it was made, or list the calls that this client keeps."""
    if forget and call_id is None:
        raise CallerError("--forget needs the ID of a call")
    with opened_client(ctx, loaded) as client:
        if call_id is None:
            _list(client.calls(), as_json)
        elif forget:
            client.forget(call_id)
            console.report(as_json, {"client": ctx.obj, "forgotten": call_id}, f"{ctx.obj} keeps {call_id} no more")
        else:
            _show(client.reply(call_id, timeout=wait), as_json)


def _list(calls: list[CallState], as_json: bool) -> None:
    if as_json:
        names = ("id", "service", "made", "deadline", "outcome", "answered", "told")
        console.print_json([{name: getattr(one, name) for name in names} | body_facts(one.body) for one in calls])
        return
    table = console.table("call", "service", "outcome", "reply")
    for one in calls:
        said = "" if one.body is None else one.body[:60].decode("utf-8", "replace")
        table.add_row(one.id, one.service, one.outcome, said)
    console.print_table(table)


def serve(
    loaded: Settings,
    ctx: typer.Context,
    service: Service,
    command: Command = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="Calls to take at most.")] = None,
    idle: Annotated[
        float | None, typer.Option(min=0, max=1e9, metavar="SECONDS", help="End when none came for so long.")
    ] = None,
    part: Part = 0,
    parts: Parts = 1,
    handler_timeout: HandlerTimeout = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Serve it no more, so that another client may.")] = False,
    as_json: AsJson = False,
) -> None:
    """Be the worker of SERVICE until Ctrl-C or SIGTERM: COMMAND runs for each call, and what it prints is the reply.

    A COMMAND that ends with another exit code than 0, or is killed by --handler-timeout, is tried again, and is an
    error reply after `handler_attempts` tries. What COMMAND does itself is not undone then, so it may happen more than
    once. It is told the call's ID as PUBSUB_CALL, the caller as PUBSUB_CALLER and the key as PUBSUB_CALL_KEY.
    PUBSUB_CALL_DOUBTFUL is 1 where a worker that lost its state directory may have processed the call, and empty
    otherwise. A signal ends COMMAND too; its call comes again, to whoever serves SERVICE under this client's ID next.
    """
    from pubsub.client.core.calling import check_service

    check_service(service, part, parts)
    if withdraw:
        with opened_client(ctx, loaded) as client:
            client.withdraw(service, part=part, parts=parts)
        console.report(as_json, {"client": ctx.obj, "withdrawn": service}, f"{ctx.obj} serves {service} no more")
        return
    console.end_when_terminated()
    with opened_client(ctx, loaded, new=True) as client:
        console.note(f"{ctx.obj} serves {service}; Ctrl-C ends it, and loses nothing")
        served = client.serve(
            service, _handler(command, handler_timeout), timeout=idle, max=count, part=part, parts=parts
        )
        client.flush()  # Else the last replies might wait here for the next start.
    console.report(as_json, {"client": ctx.obj, "service": service, "served": served}, f"served {served:,} calls")


class CommandFailed(Exception):
    """What a command that failed is called in its error reply."""


def _handler(command: list[str] | None, seconds: float | None) -> Callable[[Request, Transaction], bytes]:
    if not command:
        return lambda request, transaction: request.body
    words = command

    def run(request: Request, transaction: Transaction) -> bytes:
        told = {"PUBSUB_CALL": request.id, "PUBSUB_CALLER": request.caller}
        told["PUBSUB_CALL_KEY"] = os.fsdecode(request.key)
        told["PUBSUB_CALL_DOUBTFUL"] = "1" if request.doubtful else ""
        try:
            with TemporaryFile() as given:
                given.write(request.body)
                given.seek(0)
                pipe, group = subprocess.PIPE, None if seconds is None else 0
                child = started(
                    words, env=os.environ | told, stdin=given, stdout=pipe, stderr=pipe, process_group=group
                )
        except (OSError, ValueError) as error:
            raise CommandFailed(f"{words[0]} cannot be run: {error}") from None
        with child:
            try:
                output, errors = _written(words[0], child, seconds)
            except BaseException:
                end(child, group=seconds is not None)
                raise
        if child.returncode:
            said = errors[-SAID_BYTES:].decode("utf-8", "replace").strip()
            raise CommandFailed(f"{words[0]} ended with {child.returncode}" + (f": {said}" if said else ""))
        return output

    return run


def _written(name: str, child: subprocess.Popen[bytes], seconds: float | None) -> tuple[bytes, bytes]:
    """What a command wrote, to either stream, until it has ended; CommandFailed where it has not after `seconds`.

    A signal may come just before a system call that waits, and Python's handler then runs when that returns and not
    before: so none waits for longer than LOOK_SECONDS.
    """
    ends = float("inf") if seconds is None else time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        try:
            return child.communicate(timeout=min(left, LOOK_SECONDS))
        except subprocess.TimeoutExpired:
            continue
    raise CommandFailed(f"{name} ran for longer than {seconds:g} s and was killed")


def add_to(app: typer.Typer) -> None:
    """Make these the group's too."""
    for function in (call, replies, serve):
        app.command()(takes_settings(ClientSettings)(function))
