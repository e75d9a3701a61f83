"""The quick way to the canonical form gives the library's bytes, for every text that may take it."""

import json

import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.core.canonical import canonical_bytes
from processor.core.strict_json import Parsed, parse_strict

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-1000, 1000, places=3).map(float),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    st.sampled_from(["\u2028", "\x7f", '\b\f\n\r\t\\"/', "\x1f", "😀", "\ufffe"]),
)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
values = st.dictionaries(
    names,
    st.recursive(
        scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(names, v, max_size=3)
    ),
    max_size=4,
)


@settings(max_examples=2_000, deadline=None)
@given(values, st.booleans())
def test_plain_and_general_canonical_forms_are_the_same_bytes(
    value: dict[str, object],
    ascii_escapes: bool,
) -> None:
    """Whatever the text, the canonical form is that of the RFC 8785 library."""
    text = json.dumps(value, ensure_ascii=ascii_escapes).encode()
    parsed = parse_strict(text, depth_max=64)
    assert isinstance(parsed, Parsed)
    if parsed.exact:
        assert canonical_bytes(parsed) == rfc8785.dumps(parsed.value)  # type: ignore[arg-type]  # no Decimal in it
