"""Questions over a real Messenger, and answers to them."""

import time


def soon(seconds: float = 10.0) -> float:
    return time.monotonic() + seconds


def echo(request) -> None:
    request.reply([request.contents, *request.frames])


def ask(messenger, destination, contents, **options):
    """Ask and drive until the answer is here."""
    answers = []
    messenger.send(destination, contents, lambda *arguments: answers.append(arguments), **options)
    assert messenger.wait(lambda: bool(answers), soon()), messenger.counters
    return answers[0]
