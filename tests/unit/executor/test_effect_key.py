"""The key that systems behind tools see, and the answers' waits, without a server."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.executor.effect_key import KEY_CHARACTERS_MAX, effect_key, key_header, trace_of
from processor.executor.http_answer import judged, retry_after_s

IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@given(one=st.tuples(IDS, IDS), two=st.tuples(IDS, IDS))
def test_two_calls_never_share_a_key(one: tuple[str, str], two: tuple[str, str]) -> None:
    """Tenants with the same request and call id are two calls."""
    assert (effect_key(*one) == effect_key(*two)) == (one == two)


@given(tenant=IDS, key=IDS)
def test_a_key_can_stand_in_a_header_and_in_quotes(tenant: str, key: str) -> None:
    """Printable ASCII, no blank, no quote, no backslash, of a length that services take."""
    text = effect_key(tenant, key * 10)
    assert re.fullmatch(r"[!#-\[\]-~]+", text)
    assert len(text) <= KEY_CHARACTERS_MAX
    assert key_header(text) == f'"{text}"'


def test_a_plain_key_reads_as_it_is() -> None:
    """And what is not plain is percent-encoded."""
    assert effect_key("acme", "req_42:call_A") == "acme/req_42:call_A"
    assert effect_key("a/b", 'r:"é%') == "a%2Fb/r:%22%C3%A9%25"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1.5"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": " 120 "}, 120.0),
        ({"retry-after": "9" * 400}, 3600.0),
        ({"retry-after": "Tue, 01 Dec 2026 10:00:00 GMT"}, None),
        (
            {
                "retry-after": "Tue, 01 Dec 2026 10:00:00 GMT",
                "date": "Tue, 01 Dec 2026 11:00:00 GMT",
            },
            0.0,
        ),
        (
            {
                "retry-after": "Tue, 01 Dec 9999 10:00:00 GMT",
                "date": "Tue, 01 Dec 2026 11:00:00 GMT",
            },
            3600.0,
        ),
    ],
)
def test_a_wait_is_read_strictly_and_bounded(
    headers: dict[str, str], seconds: float | None
) -> None:
    """What cannot be read is no wish."""
    assert retry_after_s(headers) == seconds


def test_every_status_has_a_meaning_and_only_the_named_ones_a_definite_one() -> None:
    """Two hundreds are done, the list is refused, all else is open."""
    refused = [s for s in range(100, 600) if judged(s) == "refused"]
    assert refused == [400, 401, 403, 404, 405, 410, 413, 415, 422]
    assert [s for s in range(100, 600) if judged(s) == "done"] == list(range(200, 300))
    assert judged(402, frozenset({402})) == "refused"
    assert judged(204, frozenset({204})) == "done"


def test_only_well_formed_trace_headers_are_passed_on() -> None:
    """Others are nobody's business."""
    good = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "vendor=a b,other=1",
    }
    assert trace_of({**good, "authorization": "x"}) == good
    assert trace_of({"tracestate": " x", "traceparent": "00"}) == {}
