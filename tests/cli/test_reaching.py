from __future__ import annotations

from pubsub.cli.reaching import Denied, _answer
from pubsub.protocol import Outcome, Status, encode


def test_what_a_proxy_says_moves_no_terminal() -> None:
    header, body = encode(
        Status("p1", Outcome.DENIED, reason="right", body=b"\x1b[2Jclient a may not operate" + b"!" * 999)
    )
    answer = _answer(header, [body])
    assert isinstance(answer, Denied)
    assert answer.startswith("?[2Jclient a may not operate")
    assert len(answer) == 300
