"""`pubsub client ID call|replies|serve`: services from a shell (docs/clients.md, *Calls that happen once*)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, current_thread, main_thread
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pubsub import console
from pubsub.base.children import end, started
from pubsub.base.limits import SERVICE_PARTS_MAX
from pubsub.base.plurals import counted
from pubsub.client.core.outcomes import NotBegun
from pubsub.client.inputs import HeaderOption, KeyOption, headers_of, message_of, opened_client, readable, source
from pubsub.client.message_fields import body_fields
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import takes_settings
from pubsub.errors import CallerError

if TYPE_CHECKING:
    from pubsub.client import CallState, Reply, Request, Transaction

Settings = Loaded[ClientSettings]
Service = Annotated[str, typer.Argument(metavar="SERVICE", help="Name of the service: 1-64 of A-Z a-z 0-9 . _ -")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Parts = Annotated[
    int,
    typer.Option(
        min=1,
        max=SERVICE_PARTS_MAX,
        metavar="N",
        help="Number of workers that share the calls by message key; equal in every call and worker.",
    ),
]
Part = Annotated[int, typer.Option(min=0, metavar="K", help="Part that this worker serves, counted from 0.")]
Wait = Annotated[
    float | None,
    typer.Option(min=0, max=1e9, metavar="SECONDS", help="Time to wait for the reply; default: --timeout-seconds."),
]
Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- COMMAND…]",
        help="Program that reads the request and prints the reply; without it requests are echoed.",
    ),
]

Withdraw = Annotated[
    bool, typer.Option("--withdraw", help="Stop serving for good, so that another client may serve it.")
]
Together = Annotated[
    bool, typer.Option("--group", help="Share the calls with any number of workers that give --group, too.")
]
Count = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="End after this number of calls; default: no limit.")
]
Idle = Annotated[
    float | None,
    typer.Option(min=0, max=1e9, metavar="SECONDS", help="End after this time without a call; default: no limit."),
]
Concurrency = Annotated[
    int,
    typer.Option(
        "--concurrency", min=1, max=256, metavar="N", help="Number of commands that run side by side; needs --group."
    ),
]

HandlerTimeout = Annotated[
    float | None,
    typer.Option(
        "--handler-timeout",
        min=0.001,
        max=1e9,
        metavar="SECONDS",
        help="Kill COMMAND after this time; default: no limit.",
    ),
]

_ENDED: Final = frozenset({-signal.SIGINT, -signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGTERM})
"""Exit codes of a command that a signal to stop has ended."""

SAID_BYTES: Final = 300
"""Bytes of a failed command's stderr in its error reply."""

LOOK_SECONDS: Final = 0.1
"""Interval at which signals are noticed while a command runs."""


def call(
    loaded: Settings,
    ctx: typer.Context,
    service: Service,
    body: Annotated[
        str, typer.Argument(metavar="BODY", help="The request as text; - reads standard input, @PATH a file.")
    ],
    call_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="CALL",
            help="ID of the call; a second command with it is the same call. Default: a new one.",
        ),
    ] = None,
    wait: Wait = None,
    deadline: Annotated[
        float | None,
        typer.Option(
            min=0, max=1e9, metavar="SECONDS", help="Time after which no worker begins the call; default: none."
        ),
    ] = None,
    parts: Parts = 1,
    header: HeaderOption = None,
    message_key: KeyOption = "",
    as_json: AsJson = False,
) -> None:
    """Call SERVICE and print its reply. The effect of the call happens once.

    Exit code 30: no reply in time. The call continues, and its effect still happens once. To wait for the reply, run
    pubsub client ID replies CALL, or the same command with the same --id. Exit code 31: the handler failed. Exit code
    32: the deadline passed before a worker began.
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
        console.print_json({"call": reply.id, "service": reply.service} | body_fields(reply.body))
        return
    stream = typer.get_binary_stream("stdout")
    stream.write(reply.body)
    stream.flush()


def replies(
    loaded: Settings,
    ctx: typer.Context,
    call_id: Annotated[
        str | None, typer.Argument(metavar="[CALL]", help="ID of a call; without it the kept calls are listed.")
    ] = None,
    wait: Wait = None,
    forget: Annotated[bool, typer.Option("--forget", help="Delete the kept call and its reply.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the reply to an earlier call, or list all calls."""
    if forget and call_id is None:
        raise CallerError("--forget needs the ID of a call; replies without an ID lists them")
    with opened_client(ctx, loaded) as client:
        if call_id is None:
            _list(client.calls(), as_json)
        elif forget:
            client.forget(call_id)
            console.report(as_json, {"client": ctx.obj, "forgotten": call_id}, f"{ctx.obj} no longer keeps {call_id}")
        else:
            _show(client.reply(call_id, timeout=wait), as_json)


def _list(calls: list[CallState], as_json: bool) -> None:
    if as_json:
        names = ("id", "service", "made", "deadline", "outcome", "answered", "told")
        console.print_json([{name: getattr(one, name) for name in names} | body_fields(one.body) for one in calls])
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
    count: Count = None,
    idle: Idle = None,
    part: Part = 0,
    parts: Parts = 1,
    group: Together = False,
    concurrency: Concurrency = 1,
    handler_timeout: HandlerTimeout = None,
    withdraw: Withdraw = False,
    as_json: AsJson = False,
) -> None:
    """Answer each call of SERVICE with the output of COMMAND.

    The client is the worker of SERVICE until Ctrl-C or SIGTERM. If COMMAND exits with another code than 0, or
    --handler-timeout kills it, it is tried again. After --handler-attempts tries the caller gets an error reply.
    Effects of COMMAND are not undone, so they may happen more than once.

    With --group several clients serve SERVICE, and each call goes to one of them. --parts then keeps the order of each
    message key; callers name no parts. --concurrency N runs N commands side by side.

    COMMAND gets these variables. PUBSUB_CALL is the ID of the call, PUBSUB_CALLER the caller, PUBSUB_CALL_KEY the
    message key. PUBSUB_CALL_DOUBTFUL is 1 if a worker with a lost state directory may have handled the call before,
    otherwise empty.

    A signal ends COMMAND too. Its call is handled again when SERVICE is next served under this client's ID.
    """
    from pubsub.client.core.calling import check_service

    check_service(service, part, parts)
    if withdraw:
        _withdraw(loaded, ctx, service, part, parts, as_json)
        return
    if concurrency > 1 and not group:
        raise CallerError("--concurrency needs --group: a single worker handles one call after the other")
    console.end_when_terminated()
    stopping = Event()
    with opened_client(ctx, loaded, new=True) as client, _setting(stopping):
        console.note(f"{ctx.obj} serves {service}; Ctrl-C stops it without losing a call")
        handler, shares = _handler(command, handler_timeout, stopping), {"part": part, "parts": parts}
        served = client.serve(service, handler, timeout=idle, max=count, group=group, concurrency=concurrency, **shares)
        client.flush()  # Otherwise the last replies might stay here until the next start.
    console.report(
        as_json, {"client": ctx.obj, "service": service, "served": served}, f"served {counted(served, 'call')}"
    )


def _withdraw(loaded: Settings, ctx: typer.Context, service: str, part: int, parts: int, as_json: bool) -> None:
    with opened_client(ctx, loaded) as client:
        client.withdraw(service, part=part, parts=parts)
    console.report(as_json, {"client": ctx.obj, "withdrawn": service}, f"{ctx.obj} no longer serves {service}")


@contextmanager
def _setting(stopping: Event) -> Iterator[None]:
    """Set an event at a signal, before the signal's own handler ends the command.

    Commands that run on threads of their own get no exception from a signal, and the client waits for them.
    """
    if current_thread() is not main_thread():
        yield  # A test calls from a thread of its own, and Python delivers no signal there.
        return
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def stop(number: int, frame: Any) -> None:
        stopping.set()
        before[number](number, frame)

    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, handler)


class CommandFailed(Exception):
    """Type name in the error reply of a failed command."""


class Stopped(NotBegun, BaseException):
    """A signal ended the command of a call; no attempt counts."""


def _handler(
    command: list[str] | None, seconds: float | None, stopping: Event
) -> Callable[[Request, Transaction], bytes]:
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
                output, errors = _written(words[0], child, seconds, stopping)
            except BaseException:
                end(child, group=seconds is not None)
                raise
        if child.returncode in _ENDED and stopping.wait(LOOK_SECONDS):
            raise Stopped  # A terminal sends Ctrl-C to the command as well, and it may end first.
        if child.returncode:
            said = errors[-SAID_BYTES:].decode("utf-8", "replace").strip()
            raise CommandFailed(f"{words[0]} ended with {child.returncode}" + (f": {said}" if said else ""))
        return output

    return run


def _written(name: str, child: subprocess.Popen[bytes], seconds: float | None, stopping: Event) -> tuple[bytes, bytes]:
    """Return a command's stdout and stderr after it has ended.

    A signal that arrives just before a blocking system call is handled only after that call returns. So no wait is
    longer than LOOK_SECONDS.

    Raises:
        CommandFailed: it ran for longer than `seconds`.
        Stopped: a signal asked to stop.
    """
    ends = float("inf") if seconds is None else time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        if stopping.is_set():
            raise Stopped
        try:
            return child.communicate(timeout=min(left, LOOK_SECONDS))
        except subprocess.TimeoutExpired:
            continue
    raise CommandFailed(f"{name} ran for longer than {seconds:g} s and was killed")


def add_to(app: typer.Typer) -> None:
    for function in (call, replies, serve):
        app.command()(takes_settings(ClientSettings)(function))
