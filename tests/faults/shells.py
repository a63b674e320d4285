"""A program `pubsub` for what tests type into a shell: its commands are forked (`forkserver`), and are not started.

The program is a Python that imports little. It hands its words, its directory, its variables and its three descriptors
to the test, which has the command forked. It passes signals on, and ends as the command does.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.faults.forkserver import HEADER_BYTES, ForkServer, current

FORKED: Final = ("client", "status", "topic")
"""Words behind `pubsub` whose commands are forked. All others are started: what they start must be their own."""

PROGRAM: Final = """#!{python} -IS
import json, os, signal, socket, sys

words = sys.argv[1:]
if not words or words[0] not in {forked}:
    os.execv({python!r}, [{python!r}, "-m", "pubsub", *words])
link = socket.socket(socket.AF_UNIX)
link.connect({address!r})
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, lambda number, _: link.sendall(bytes([number])))
order = json.dumps({{"words": words, "directory": os.getcwd(), "environment": dict(os.environ)}}).encode()
socket.send_fds(link, [len(order).to_bytes({header_bytes}, "big")], [0, 1, 2])
link.sendall(order)
code = int(link.makefile("rb").read() or b"1")
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextlib.contextmanager
def installed(path: Path) -> Iterator[None]:
    """Have an executable file that runs `pubsub`, meanwhile by forks where the run of tests has a fork server."""
    server = current()
    if server is None:
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pubsub "$@"\n')
        path.chmod(0o755)
        yield
        return
    # The path of a socket may have some hundred characters: a test's own directory can be too long.
    with tempfile.TemporaryDirectory(prefix="pubsub-") as folder, socket.socket(socket.AF_UNIX) as listener:
        address = f"{folder}/s"
        listener.bind(address)
        listener.listen()
        text = PROGRAM.format(python=sys.executable, forked=FORKED, address=address, header_bytes=HEADER_BYTES)
        path.write_text(text)
        path.chmod(0o755)
        over = threading.Event()
        accepting = threading.Thread(target=_accept, args=(listener, server, over))
        accepting.start()
        try:
            yield
        finally:
            over.set()
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(address)
            accepting.join()


def _accept(listener: socket.socket, server: ForkServer, over: threading.Event) -> None:
    commands: list[threading.Thread] = []
    while True:
        link, _ = listener.accept()
        if over.is_set():
            link.close()
            break
        commands.append(threading.Thread(target=_run, args=(link, server)))
        commands[-1].start()
    for each in commands:
        each.join()


def _run(link: socket.socket, server: ForkServer) -> None:
    """Run one command until it ends; it is killed if the program that stands for it is."""
    with link:
        header, given, _, _ = socket.recv_fds(link, HEADER_BYTES, 3)
        order: dict[str, Any] = json.loads(_exactly(link, int.from_bytes(header, "big")))
        stdin, output, errors = given
        command = ["-m", "pubsub", *order["words"]]
        try:
            child = server.start(
                command, order["environment"], output, errors, Path(order["directory"]), stdin=stdin
            )  # fmt: skip
        finally:
            for each in given:
                os.close(each)
        with child.stdin:
            while (code := child.poll()) is None:
                if link in select.select([link, child], [], [])[0]:
                    number = link.recv(1)
                    if number:
                        child.send_signal(number[0])
                    else:
                        child.kill()
                        child.wait()
                        return
        with contextlib.suppress(OSError):  # The program was killed.
            link.sendall(b"%d" % code)


def _exactly(link: socket.socket, size: int) -> bytes:
    whole = b""
    while len(whole) < size:
        chunk = link.recv(size - len(whole))
        assert chunk, "the program has ended"
        whole += chunk
    return whole
