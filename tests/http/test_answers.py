"""The meaning of an answer, and the text of an error.

The rule is docs/explanation/reliable-http.md, Q2.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.http.core.answers import Answer, Verdict, is_again, judge, problem, reason
from pubsub.http.core.limits import PROBLEM_BYTES_MAX


def test_too_deeply_nested_json_is_refused() -> None:
    with pytest.raises(ValueError, match="too deeply"):
        Answer(200, {}, b"[" * 100_000).json()


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 299])
def test_2xx_settles_a_request(status: int) -> None:
    assert judge(Answer(status), job=False) is Verdict.ANSWERED


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 507, 599])
def test_a_temporary_status_is_tried_again(status: int) -> None:
    assert judge(Answer(status), job=False) is judge(Answer(status), job=True) is Verdict.AGAIN


@pytest.mark.parametrize(
    "status", [301, 307, 308, 400, 401, 403, 404, 405, 410, 413, 415, 422, 431, 501, 505, 508, 511]
)
def test_a_permanent_status_is_final(status: int) -> None:
    assert judge(Answer(status), job=False) is judge(Answer(status), job=True) is Verdict.REFUSED


def test_the_verdict_on_a_job_depends_on_its_success_status() -> None:
    assert judge(Answer(202), job=True) is Verdict.ACCEPTED
    assert judge(Answer(200), job=True) is Verdict.ANSWERED
    assert judge(Answer(204), job=True) is Verdict.REFUSED


@given(st.integers(100, 999))
def test_every_status_has_a_meaning(status: int) -> None:
    verdict = judge(Answer(status), job=False)
    assert (verdict is Verdict.AGAIN) == is_again(status)


def test_an_error_is_problem_json_and_read_as_one_line() -> None:
    answer = problem(422, "another request", "of\nyesterday", 3)
    assert json.loads(answer.body) == {"status": 422, "title": "another request", "detail": "of\nyesterday"}
    assert answer.headers == {"content-type": "application/problem+json", "retry-after": "3"}
    assert reason(answer) == "another request: of yesterday"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(400, {"content-type": "text/plain; charset=utf-8"}, b"no\nsuch"), "no such"),
        (Answer(400, {"content-type": "text/html"}, b"<h1>no</h1>"), ""),
        (Answer(400, {"content-type": "application/json"}, b"{"), ""),
        (Answer(400, {"content-type": "application/json"}, b"[1]"), ""),
        (Answer(400, {"content-type": "application/json"}, b"[" * 20_000), ""),
        (Answer(400, {"content-type": "application/json"}, b'{"title": "' + b"x" * PROBLEM_BYTES_MAX + b'"}'), ""),
        (Answer(307, {"location": "http://elsewhere/"}), "redirected to http://elsewhere/"),
    ],
)
def test_the_reason_is_taken_from_the_answer(answer: Answer, said: str) -> None:
    assert reason(answer) == said


@given(st.binary(max_size=300), st.sampled_from(["text/plain", "application/problem+json", "application/json", ""]))
def test_the_reason_of_an_answer_is_one_bounded_line(body: bytes, kind: str) -> None:
    said = reason(Answer(400, {"content-type": kind}, body))
    assert len(said) <= 200
    assert "\n" not in said


def test_a_body_is_read_as_text_and_as_json() -> None:
    assert Answer(200, {}, b'{"a": 1}').json() == {"a": 1}
    assert Answer(200, {}, b"\xff!").text == "�!"
