"""Ranges of logs: positions found in them, and the rest behind a position."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import NUMBER_MAX
from pubsub.server.topic.spans import Span, after, cut, find, floors

A, B = "a" * 16, "b" * 16


def offsets(spans: tuple[Span, ...]) -> list[tuple[str, int]]:
    """Every position of these spans, growing ones up to 20."""
    return [(span.log, offset) for span in spans for offset in range(span.low, 20 if span.high is None else span.high)]


def test_a_span_holds_from_its_low_to_below_its_high() -> None:
    assert [offset for offset in range(8) if Span(A, 3, 6).holds(offset)] == [3, 4, 5]
    assert Span(A, 3).holds(NUMBER_MAX)
    assert not Span(A, 3).holds(2)


def test_a_position_is_found_in_its_own_log_only() -> None:
    spans = (Span(B, 2, 5), Span(A, 1, 4), Span(A, 7))
    assert [find(spans, position) for position in ((B, 4), (A, 3), (A, 7), (A, 4), (B, 5), ("c" * 16, 1))] == [
        *(0, 1, 2),
        *(None, None, None),
    ]


def test_the_rest_behind_a_position_omits_used_up_spans() -> None:
    spans = (Span(B, 2, 5, watermark=3, since=9), Span(A, 1))
    assert after(spans, (B, 2)) == (Span(B, 3, 5, watermark=3, since=9), Span(A, 1))
    assert after(spans, (B, 4)) == (Span(A, 1),)
    assert after(spans, (A, 6)) == (Span(A, 7),)  # it can still grow
    assert after(spans, (A, 0)) is None


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 4)), max_size=5), st.data())
def test_the_rest_behind_a_position_is_exact(widths: list[tuple[str, int]], data: st.DataObject) -> None:
    place = {A: 1, B: 1}
    spans: list[Span] = []
    for log, width in widths:
        spans.append(Span(log, place[log], place[log] + width))
        place[log] += width + 1
    spans.append(Span(A, place[A]))
    every = offsets(tuple(spans))
    index = data.draw(st.integers(0, len(every) - 1))
    rest = after(spans, every[index])
    assert rest is not None
    assert offsets(rest) == every[index + 1 :]
    assert all(span.high is None or span.low < span.high for span in rest)


def test_cutting_ends_the_growing_span_of_one_log() -> None:
    spans = (Span(B, 1, 3), Span(A, 5))
    assert cut(spans, A, 9) == (Span(B, 1, 3), Span(A, 5, 9))
    assert cut(spans, A, 5) == (Span(B, 1, 3),)
    assert cut(spans, B, 9) == spans


def test_floors_are_the_lowest_held_offsets() -> None:
    holders = [(Span(A, 7), Span(B, 2, 4)), (Span(A, 5),), ()]
    assert floors(holders, {A: 9, B: 6, "c" * 16: 3}) == {A: 5, B: 2, "c" * 16: 3}
