from __future__ import annotations

from pubsub.client.requests import NoAnswer, _answer
from pubsub.errors import NotAllowed
from pubsub.protocol import Outcome, Status, encode


def test_the_reason_of_a_proxy_contains_no_control_characters() -> None:
    header, body = encode(
        Status("p1", Outcome.DENIED, reason="right", body=b"\x1b[2Jclient a may not operate" + b"!" * 999)
    )
    answer = _answer(header, [body])
    assert isinstance(answer, NoAnswer)
    assert answer.error is NotAllowed
    assert answer.reason.startswith("?[2Jclient a may not operate")
    assert len(answer.reason) == 300
