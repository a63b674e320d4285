from __future__ import annotations

from pubsub.client.requests import NoAnswer, _answer
from pubsub.errors import NotAllowed
from pubsub.protocol import Outcome, Status, encode


def test_what_a_proxy_says_moves_no_terminal() -> None:
    header, body = encode(
        Status("p1", Outcome.DENIED, reason="right", body=b"\x1b[2Jclient a may not operate" + b"!" * 999)
    )
    answer = _answer(header, [body])
    assert isinstance(answer, NoAnswer)
    assert answer.error is NotAllowed
    assert answer.reason.startswith("?[2Jclient a may not operate")
    assert len(answer.reason) == 300
