"""The canonical form against the vectors of RFC 8785, and the digests over it."""

import hashlib
import struct

import pytest

from processor.core.canonical import canonical_bytes, canonical_sha256, sha256
from processor.core.strict_json import Parsed, parse_strict


def parsed(text: str | bytes) -> Parsed:
    """An accepted text."""
    found = parse_strict(text.encode() if isinstance(text, str) else text, depth_max=64)
    assert isinstance(found, Parsed)
    return found


#: RFC 8785, appendix B: the double's bits, and how it is written.
NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


@pytest.mark.parametrize(("bits", "written"), NUMBERS, ids=[row[0] for row in NUMBERS])
def test_doubles_are_written_as_in_appendix_b(bits: str, written: str) -> None:
    """The text of a double is ECMAScript's shortest one."""
    (double,) = struct.unpack(">d", bytes.fromhex(bits))
    assert (
        canonical_bytes(Parsed({"n": double}, exact=True, plain=False))
        == f'{{"n":{written}}}'.encode()
    )
    assert canonical_bytes(parsed(f'{{"n":{double!r}}}')) == f'{{"n":{written}}}'.encode()


def test_the_sample_of_section_3_2_2_has_the_bytes_of_section_3_2_4() -> None:
    """Literals, numbers and escapes; its first number has a digit too many to be exact."""
    sample = parsed(
        r"""
        {
          "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
          "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
          "literals": [null, true, false]
        }
        """
    )
    assert canonical_bytes(sample) == bytes.fromhex(
        "7b226c69746572616c73223a5b6e756c6c2c747275652c66616c73655d2c226e756d62657273223a"
        "5b3333333333333333332e333333333333332c31652b33302c342e352c302e3030322c31652d3237"
        "5d2c22737472696e67223a22e282ac245c75303030665c6e4127425c225c5c5c5c5c222f227d"
    )
    assert not sample.exact
    assert canonical_sha256(sample) is None


def test_members_are_sorted_by_utf_16_as_in_section_3_2_3() -> None:
    """An emoji sorts by its surrogates, below the letters from U+E000 on."""
    sample = parsed(
        r"""{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",
        "1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control",
        "\u00f6":"Latin Small Letter O With Diaeresis"}"""
    )
    canonical = canonical_bytes(sample).decode()
    order = [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]
    places = [canonical.index(name) for name in order]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "text",
    ['{"b":[1,2],"a":"é"}', ' {"a":"\\u00e9", "b":[1.0,2e0]}\n', '{"a":"\\u00E9","b":[1,20e-1]}'],
    ids=["plain", "escaped", "exponents"],
)
def test_texts_of_one_meaning_have_one_digest(text: str) -> None:
    """Order, white space, escapes and the way a number is written do not count."""
    canonical = '{"a":"é","b":[1,2]}'.encode()
    assert canonical_sha256(parsed(text)) == hashlib.sha256(canonical).digest()


@pytest.mark.parametrize(
    "number", ["1234567890123456789", "0.12345678901234567890", "1e-400", "9007199254740993"]
)
def test_a_number_that_a_double_would_change_has_no_canonical_digest(number: str) -> None:
    """Rounding would make two different calls equal."""
    assert canonical_sha256(parsed(f'{{"a":[{{"n":{number}}}]}}')) is None


def test_sha256_of_the_empty_text() -> None:
    """The well-known vector of FIPS 180-4."""
    assert sha256(b"").hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
