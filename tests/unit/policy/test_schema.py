"""Schema checks: right answers, and never a word of what was checked."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.core.errors import Misuse
from processor.policy.schema import compile_schema

SECRET = "canary-7d2e"


@pytest.mark.parametrize(
    ("schema", "arguments", "answer"),
    [
        ({"required": ["a"]}, {}, "/: required"),
        ({"properties": {"a": {"type": "integer"}}}, {"a": SECRET}, "/a: type"),
        (
            {"properties": {"a": {"items": {"maxLength": 1}}}},
            {"a": ["", SECRET]},
            "/a/1: maxLength",
        ),
        ({"additionalProperties": False}, {SECRET: 1}, "/: falseSchema"),
        ({"additionalProperties": {"type": "string"}}, {SECRET: 1}, "/*: type"),
        ({"additionalProperties": {"type": "string"}}, {"4111111111111111": 1}, "/*: type"),
        ({"additionalProperties": {"items": False}}, {"007": [1]}, "/*/*: falseSchema"),
        ({"properties": {"a/b~": {"const": 1}}}, {"a/b~": 2}, "/a~1b~0: const"),
        ({"properties": {"d": {"format": "date"}}}, {"d": "tomorrow"}, "/d: format"),
        ({"properties": {"n": {"multipleOf": 0.01}}}, {"n": Decimal("1.001")}, "/n: multipleOf"),
        ({"properties": {"n": {"maximum": 10}}}, {"n": 10**30}, "/n: maximum"),
    ],
)
def test_a_mismatch_is_a_pointer_and_a_keyword(
    schema: dict[str, object], arguments: object, answer: str
) -> None:
    """Names that the schema does not know are not shown."""
    assert compile_schema(schema, "here")(arguments) == answer


def test_a_big_integer_stays_exact() -> None:
    """No rounding decides about a limit."""
    check = compile_schema({"properties": {"n": {"maximum": 2**63}}}, "here")
    assert check({"n": 2**63}) is None
    assert check({"n": 2**63 + 1}) == "/n: maximum"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strin"},
        {"$ref": "http://127.0.0.1:9/other.json"},
        {"$ref": "file:///etc/hostname"},
        {"properties": {"a": {"pattern": "(?=look)ahead"}}},
        {"properties": {"a": {"pattern": "("}}},
    ],
)
def test_what_is_no_schema_of_its_own_is_refused_at_the_start(schema: dict[str, object]) -> None:
    """Also one that would fetch another document, or match in exponential time."""
    with pytest.raises(Misuse, match=r"^here: "):
        compile_schema(schema, "here")


def test_a_pattern_cannot_take_exponential_time() -> None:
    """The classic bomb answers at once."""
    check = compile_schema({"properties": {"a": {"pattern": "^(a+)+$"}}}, "here")
    assert check({"a": "a" * 50_000 + "!"}) == "/a: pattern"


@given(st.dictionaries(st.text(min_size=8), st.integers() | st.text(min_size=8), min_size=1))
def test_no_answer_quotes_what_was_checked(arguments: dict[str, object]) -> None:
    """Whatever the names and values are."""
    check = compile_schema({"additionalProperties": {"type": "null"}}, "here")
    assert check(arguments) == "/*: type"
