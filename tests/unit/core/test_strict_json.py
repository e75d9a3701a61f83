"""Strict JSON: the whole text is one JSON object with one meaning, or it is refused by name."""

from decimal import Decimal

import pytest

from processor.core.strict_json import (
    INTEGER_DIGITS_MAX,
    INTEGER_EXACT_MAX,
    Fault,
    Parsed,
    parse_strict,
)

DEPTH_MAX = 64


def parse(text: bytes, *, decimals: bool = False) -> Parsed | Fault:
    """Parse with the default depth."""
    return parse_strict(text, depth_max=DEPTH_MAX, decimals=decimals)


def accepted(text: bytes, *, decimals: bool = False) -> Parsed:
    """The parsed text, which must be accepted."""
    parsed = parse(text, decimals=decimals)
    if isinstance(parsed, Fault):
        raise AssertionError(parsed.reason)
    return parsed


def nested(depth: int, *, arrays: bool = False) -> bytes:
    """An object of `depth` nested containers in all."""
    if arrays:
        return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"
    return b'{"a":' * (depth - 1) + b"{}" + b"}" * (depth - 1)


REFUSED = [
    ("nothing", b"", "empty_arguments"),
    ("blanks", b" \t\r\n", "empty_arguments"),
    ("null", b"null", "not_an_object"),
    ("true", b"true", "not_an_object"),
    ("false", b" false ", "not_an_object"),
    ("string", b'"{}"', "not_an_object"),
    ("array", b"[{}]", "not_an_object"),
    ("integer", b"1", "not_an_object"),
    ("fraction", b"1.5", "not_an_object"),
    ("long integer", b"9" * 30, "not_an_object"),
    ("cut", b'{"a":1', "invalid_json"),
    ("cut string", b'{"a":"b', "invalid_json"),
    ("cut escape", b'{"a":"\\u00', "invalid_json"),
    ("two objects", b"{}{}", "invalid_json"),
    ("two objects apart", b"{} {}", "invalid_json"),
    ("trailing comma", b'{"a":1,}', "invalid_json"),
    ("trailing text", b"{}x", "invalid_json"),
    ("trailing NUL byte", b"{}\x00", "invalid_json"),
    ("leading text", b"x{}", "invalid_json"),
    ("code fence", b"```json\n{}\n```", "invalid_json"),
    ("single quotes", b"{'a':1}", "invalid_json"),
    ("bare name", b"{a:1}", "invalid_json"),
    ("comment", b"{}//", "invalid_json"),
    ("byte order mark", b"\xef\xbb\xbf{}", "invalid_json"),
    ("UTF-16", "{}".encode("utf-16-le"), "invalid_json"),
    ("form feed is no white space", b"\x0c{}", "invalid_json"),
    ("no-break space is none either", b"\xc2\xa0{}", "invalid_json"),
    ("leading zero", b'{"a":01}', "invalid_json"),
    ("plus sign", b'{"a":+1}', "invalid_json"),
    ("point at the end", b'{"a":1.}', "invalid_json"),
    ("point at the start", b'{"a":.5}', "invalid_json"),
    ("hexadecimal", b'{"a":0x1}', "invalid_json"),
    ("minus alone", b'{"a":-}', "invalid_json"),
    ("exponent alone", b'{"a":1e}', "invalid_json"),
    ("raw control character", b'{"a":"\x01"}', "invalid_json"),
    ("raw line feed", b'{"a":"\n"}', "invalid_json"),
    ("raw NUL", b'{"a":"\x00"}', "invalid_json"),
    ("bad escape", b'{"a":"\\x41"}', "invalid_json"),
    ("high surrogate", b'{"a":"\\ud800"}', "invalid_json"),
    ("low surrogate", b'{"a":"\\udc00"}', "invalid_json"),
    ("surrogates swapped", b'{"a":"\\udc00\\ud800"}', "invalid_json"),
    ("surrogate in a name", b'{"\\ud800":1}', "invalid_json"),
    ("NaN", b'{"a":NaN}', "non_finite_number"),
    ("NaN alone", b"NaN", "non_finite_number"),
    ("Infinity", b'{"a":[Infinity]}', "non_finite_number"),
    ("minus Infinity", b'{"a":-Infinity}', "non_finite_number"),
    ("NaN in a cut text", b'{"a":NaN', "invalid_json"),
    ("invalid UTF-8 in a value", b'{"a":"\xff"}', "invalid_utf8"),
    ("invalid UTF-8 in a name", b'{"\xc3":1}', "invalid_utf8"),
    ("overlong UTF-8", b'{"a":"\xc0\x80"}', "invalid_utf8"),
    ("surrogate as UTF-8", b'{"a":"\xed\xa0\x80"}', "invalid_utf8"),
    ("cut UTF-8 at the end", b'{"a":1}\xe2\x82', "invalid_utf8"),
    ("invalid UTF-8 alone", b"\xff", "invalid_utf8"),
    ("duplicate", b'{"a":1,"a":2}', "duplicate_member"),
    ("equal duplicate", b'{"a":1,"a":1}', "duplicate_member"),
    ("empty duplicate", b'{"":1,"":1}', "duplicate_member"),
    ("escaped duplicate", b'{"a":1,"\\u0061":2}', "duplicate_member"),
    ("duplicate in an array", b'{"a":[1,{"b":1,"b":1}]}', "duplicate_member"),
    ("NUL in a value", b'{"a":"x\\u0000"}', "nul_character"),
    ("NUL in a name", b'{"a\\u0000":1}', "nul_character"),
    ("NUL in an array", b'{"a":[1,"\\u0000"]}', "nul_character"),
    ("1e999", b'{"a":1e999}', "number_out_of_range"),
    ("-1e999", b'{"a":-1e999}', "number_out_of_range"),
    ("5,000 digits", b'{"a":' + b"9" * 5_000 + b"}", "number_out_of_range"),
    ("256 KiB of digits", b'{"a":' + b"9" * 262_000 + b"}", "number_out_of_range"),
    ("310 digits", b'{"a":1' + b"0" * INTEGER_DIGITS_MAX + b"}", "number_out_of_range"),
    ("minus 310 digits", b'{"a":-1' + b"0" * INTEGER_DIGITS_MAX + b"}", "number_out_of_range"),
    ("exponent of 20 digits", b'{"a":1e-99999999999999999999}', "number_out_of_range"),
    ("zero with such an exponent", b'{"a":0e99999999999999999999}', "number_out_of_range"),
    ("depth 65", nested(65), "too_deep"),
    ("depth 65 of arrays", nested(65, arrays=True), "too_deep"),
    ("depth 100,000", nested(100_000), "too_deep"),
    ("depth 100,000, cut", b"[" * 100_000, "too_deep"),
]


@pytest.mark.parametrize(
    ("text", "reason"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_is_not_exactly_one_object_is_refused_by_name(text: bytes, reason: str) -> None:
    """Nothing is repaired, closed, split, stripped or guessed; no input makes the parser raise."""
    for decimals in (False, True):
        refused = parse(text, decimals=decimals)
        assert isinstance(refused, Fault)
        assert refused.reason == reason
        assert refused.detail


@pytest.mark.parametrize("depth", range(1, 65, 7))
@pytest.mark.parametrize("array", [False, True], ids=["objects", "arrays"])
def test_a_duplicate_is_found_at_every_depth(depth: int, *, array: bool) -> None:
    """Also in an object inside of arrays."""
    opened, closed = (b"[", b"]") if array else (b'{"a":', b"}")
    inner = opened * (depth - 1) + b'{"b":1,"b":1}' + closed * (depth - 1)
    refused = parse(b'{"x":' + inner + b"}")
    assert isinstance(refused, Fault)
    assert refused.reason == "duplicate_member"


ACCEPTED: list[tuple[str, bytes, object, bool]] = [
    ("empty object", b"{}", {}, True),
    ("white space around", b" \t\r\n{ \n} \r\n", {}, True),
    (
        "all kinds",
        b'{"a":[null,true,false,"s",1,{}]}',
        {"a": [None, True, False, "s", 1, {}]},
        True,
    ),
    ("equal names apart", b'{"a":{"a":1},"b":{"a":1}}', {"a": {"a": 1}, "b": {"a": 1}}, True),
    ("names that differ by case", b'{"a":1,"A":2}', {"a": 1, "A": 2}, True),
    ("paired surrogates", b'{"a":"\\ud83d\\ude00"}', {"a": "\U0001f600"}, True),
    ("plain UTF-8", '{"é":"\U0001f600"}'.encode(), {"é": "\U0001f600"}, True),
    ("composed and not", b'{"\xc3\xa9":1,"e\xcc\x81":2}', {"\xe9": 1, "e\u0301": 2}, True),
    ("DEL is legal", b'{"a":"\x7f"}', {"a": "\x7f"}, True),
    ("escaped control character", b'{"a":"\\u0001"}', {"a": "\x01"}, True),
    ("minus zero", b'{"a":-0}', {"a": 0}, True),
    ("minus zero fraction", b'{"a":-0.0}', {"a": -0.0}, True),
    ("short fraction", b'{"a":0.1}', {"a": 0.1}, True),
    ("zeros at the end", b'{"a":1.500}', {"a": 1.5}, True),
    ("exponent", b'{"a":1E+2}', {"a": 100.0}, True),
    ("smallest double", b'{"a":5e-324}', {"a": 5e-324}, True),
    ("2^53 - 1", b'{"a":9007199254740991}', {"a": INTEGER_EXACT_MAX}, True),
    ("2^53", b'{"a":9007199254740992}', {"a": 2**53}, False),
    ("-2^53", b'{"a":-9007199254740992}', {"a": -(2**53)}, False),
    ("19 digits", b'{"a":1234567890123456789}', {"a": 1234567890123456789}, False),
    ("309 digits", b'{"a":' + b"9" * 309 + b"}", {"a": 10**309 - 1}, False),
    (
        "19 digits in an array",
        b'{"a":[[1234567890123456789]]}',
        {"a": [[1234567890123456789]]},
        False,
    ),
    ("a fraction too long", b'{"a":0.12345678901234567890}', {"a": 0.12345678901234568}, False),
    ("17 digits and a neighbour", b'{"a":333333333.33333329}', {"a": 333333333.3333333}, False),
    ("below the smallest double", b'{"a":1e-400}', {"a": 0.0}, False),
    ("depth 64", nested(64), None, True),
    ("depth 64 of arrays", nested(64, arrays=True), None, True),
]


@pytest.mark.parametrize(
    ("text", "value", "exact"), [row[1:] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED]
)
def test_an_object_is_taken_with_its_exact_meaning(
    text: bytes, value: object, *, exact: bool
) -> None:
    """Integers keep every digit; `exact` is False when a reader of doubles would see another value."""
    parsed = accepted(text)
    assert parsed.exact is exact
    if value is not None:
        assert parsed.value == value


def test_decimals_keep_every_digit() -> None:
    """Rules about money see what the model wrote."""
    text = b'{"a":[0.12345678901234567890,1e-400,-0.0,2],"b":1.10}'
    parsed = accepted(text, decimals=True)
    assert parsed.value == {
        "a": [Decimal("0.12345678901234567890"), Decimal("1e-400"), Decimal("-0.0"), 2],
        "b": Decimal("1.10"),
    }
    assert not parsed.exact


def test_a_huge_text_is_parsed_whole() -> None:
    """256 KiB of members, of one string and of one fraction."""
    members = b",".join(b'"m%d":%d' % (n, n) for n in range(20_000))
    assert len(accepted(b"{" + members + b"}").value) == 20_000
    assert accepted(b'{"a":"' + b"x" * 262_000 + b'"}').exact
    assert not accepted(b'{"a":0.' + b"9" * 262_000 + b"}").exact


def test_a_detail_tells_the_place_and_the_kind_only() -> None:
    """Line and column of the parser, a byte for bad UTF-8, a bound for a limit."""
    details: list[str] = []
    for text in (b'{"a":1,\n"a":2}', b"{", b'{"a":"\xff"}', nested(65), b"[]", b" "):
        refused = parse(text)
        assert isinstance(refused, Fault)
        details.append(refused.detail)
    assert details == [
        "line 2 column 5",
        "line 1 column 1",
        "byte 6 of 9",
        "more than 64 nested containers",
        "the text is a JSON array",
        "1 bytes, no JSON value",
    ]
