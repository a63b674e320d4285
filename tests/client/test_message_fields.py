"""The format of a message as `get` writes it."""

from __future__ import annotations

import json

from pubsub.client.core.message import Batch, Message, RunSlice
from pubsub.client.message_fields import written
from tests.client.test_message import records


def messages(doubtful: bool) -> list[Message]:
    found = records([[b"a", b"b\n"]])
    return list(Batch("t", [RunSlice(run, found.data, 0, len(run.ends), doubtful) for run in found.runs]))


def test_a_single_body_is_written_as_it_is_and_several_end_with_a_newline() -> None:
    first, second = messages(False)
    assert [written(first, False, alone=alone) for alone in (True, False)] == [b"a", b"a\n"]
    assert written(second, False, alone=False) == b"b\n"


def test_only_a_message_that_may_have_been_processed_is_marked_doubtful() -> None:
    assert "doubtful" not in json.loads(written(messages(False)[0], True, alone=False))
    assert json.loads(written(messages(True)[0], True, alone=False))["doubtful"] is True
