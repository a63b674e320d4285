"""`put --lines` that ends early reports the number of lines put, and exactly these arrive."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pubsub import Client
from pubsub.client.interrupted import Interrupts


@contextmanager
def putting(place: list[str], topic: str, source: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "pubsub", "client", "c", "put", topic, source, "--lines", *place]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def counted(errors: bytes) -> int:
    found = re.search(rb"interrupted: the first ([\d,]+) lines were put", errors)
    assert found is not None, errors
    return int(found[1].replace(b",", b""))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_input_is_waited_for_says_how_many_lines_went(
    service: str, topic: str, tmp_path: Path, number: int
) -> None:
    place = ["--proxy", service, "--dir", str(tmp_path / "c")]
    with Client("reader", proxies=[service], directory=tmp_path / "reader") as reader:
        reader.subscribe(topic)
        with putting(place, topic, "-") as process:
            assert process.stdin is not None
            process.stdin.write(b"one\ntwo\nhalf a li")
            process.stdin.flush()
            assert reader.get(topic, timeout=30) is not None, "it has begun"
            process.send_signal(number)
            output, errors = process.communicate(timeout=30)
        assert (process.returncode, output) == (130, b""), errors
        assert counted(errors) == 2
        assert len(errors.splitlines()) == 1
        with Client("c", proxies=[service], directory=tmp_path / "c") as client:
            client.flush()
        assert [message.body for message in reader.get_many(topic, 10, timeout=10)] == [b"two"]


def test_as_many_lines_arrive_as_the_command_reports_after_an_interrupt_anywhere(
    service: str, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("".join(f"{number}\n" for number in range(300_000)))
    place = ["--proxy", service, "--dir", str(tmp_path / "c")]
    with Client("reader", proxies=[service], directory=tmp_path / "reader") as reader:
        reader.subscribe(topic)
        with putting(place, topic, str(tmp_path / "lines")) as process:
            first = reader.get(topic, timeout=30)
            assert first is not None
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        # All are put, where this test was slower than they were.
        said = 300_000 if process.returncode == 0 else counted(errors)
        assert process.returncode in {0, 130}
        with Client("c", proxies=[service], directory=tmp_path / "c") as client:
            client.flush()
            client.put(topic, b"the last one")
        arrived = [first.body]
        while arrived[-1] != b"the last one":
            more = reader.get_many(topic, 10_000, timeout=30)
            assert more
            arrived += [message.body for message in more]
        assert arrived == [*(b"%d" % number for number in range(said)), b"the last one"]


def test_a_line_that_is_no_message_says_how_many_went_before(service: str, topic: str, tmp_path: Path) -> None:
    place = ["--proxy", service, "--dir", str(tmp_path / "c")]
    with putting(place, topic, "-") as process:
        output, errors = process.communicate(b"one\ntwo\n" + b"x" * (17 * 1024 * 1024), timeout=60)
    assert (process.returncode, output) == (2, b"")
    assert b"the first 2 lines were put" in errors


def test_a_signal_waits_for_the_end_of_a_step_but_where_the_step_waits() -> None:
    was_interrupted: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: was_interrupted.append(number))
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGTERM)
            assert was_interrupted == []
            interrupts.check()
            assert was_interrupted == [signal.SIGTERM]
            signal.raise_signal(signal.SIGTERM)
            assert len(was_interrupted) == 2, "the second one is handled at once"
        with Interrupts() as interrupts, interrupts.waiting():
            signal.raise_signal(signal.SIGTERM)
            assert len(was_interrupted) == 3
    finally:
        signal.signal(signal.SIGTERM, before)
