"""The catalogue: what is read, what is refused and where, and what its digest names."""

import pytest

from processor.core.errors import Misuse
from processor.core.gate import UNLISTED
from processor.policy.catalogue import CATALOGUE_BYTES_MAX, CatalogueTool, parse_catalogue

FULL = """
version: 1
tools:
  refund:
    description: Pay money back.
    effect_class: idempotent
    schema:
      type: object
      required: [order, amount_cents]
      properties:
        order: {type: string, pattern: "^ORDER-[0-9]+$"}
        amount_cents: {type: integer, minimum: 1, maximum: 50000}
      additionalProperties: false
    empty_arguments: reject
    timeout_s: 2.5
    max_attempts: 4
    concurrency: 2
    redrive_window_s: 3600
  ping: {effect_class: read_only, empty_arguments: object}
  note: {arguments: text}
"""


def test_a_listed_tool_has_what_is_stated_and_defaults_for_the_rest() -> None:
    """Every field, and the pessimistic class where none is stated."""
    catalogue = parse_catalogue(FULL)
    refund = catalogue.tool("refund")
    assert refund is not None
    assert refund == CatalogueTool(
        name="refund",
        effect_class="idempotent",
        description="Pay money back.",
        arguments="json",
        empty_arguments_allowed=False,
        validate=refund.validate,
        timeout_s=2.5,
        max_attempts=4,
        concurrency=2,
        redrive_window_s=3600.0,
        schema=refund.schema,
    )
    note = catalogue.tool("note")
    assert note is not None
    assert (note.effect_class, note.arguments, note.validate) == ("at_most_once", "text", None)
    assert catalogue.names() == {"refund", "ping", "note"}


def test_the_rule_is_what_the_assembler_needs() -> None:
    """Class, empty arguments, schema; an unlisted tool gets the pessimistic rule."""
    catalogue = parse_catalogue(FULL)
    ping = catalogue.rule("ping")
    assert (ping.effect_class, ping.empty_arguments_allowed, ping.validate) == (
        "read_only",
        True,
        None,
    )
    validate = catalogue.rule("refund").validate
    assert validate is not None
    assert validate({"order": "ORDER-1001", "amount_cents": 5}) is None
    assert validate({"order": "ORDER-1001", "amount_cents": 0}) == "/amount_cents: minimum"
    assert catalogue.rule("nobody") is UNLISTED
    assert catalogue.tool("nobody") is None


def test_the_digest_names_the_meaning_and_not_the_layout() -> None:
    """Comments, order and quoting do not change it; any stated value does."""
    one = parse_catalogue("version: 1\ntools:\n  a: {timeout_s: 5}\n  b: {}\n")
    two = parse_catalogue("# x\ntools: {'b': {}, a: {timeout_s: 5}}\nversion: 1\n")
    three = parse_catalogue("version: 1\ntools:\n  a: {timeout_s: 6}\n  b: {}\n")
    assert one.digest == two.digest
    assert one.digest != three.digest
    assert len(one.digest) == 64


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "tools.yaml is empty"),
        ("[]", "tools.yaml:1: must be a mapping"),
        ("tools: {}", "tools.yaml:1: version must be 1"),
        ("version: 2", "tools.yaml:1: version: version must be 1"),
        ("version: 1\ntool: {}", "tools.yaml:2: tool: unknown field"),
        ("version: 1\ntools:\n  a: {effect: x}", "tools.yaml:3: tools.a.effect: unknown field"),
        ("version: 1\ntools:\n  a:\n    effect_class: x", "tools.yaml:4: tools.a.effect_class"),
        ("version: 1\ntools:\n  a: {}\n  a: {}", "tools.yaml:4: tools.a: is there twice"),
        ("version: 1\ntools:\n  a: {timeout_s: 0}", "tools.a.timeout_s: must be a number above 0"),
        ("version: 1\ntools:\n  a: {timeout_s: true}", "tools.a.timeout_s: must be a number"),
        ("version: 1\ntools:\n  a: {timeout_s: .inf}", "tools.a.timeout_s: YAML reads"),
        ("version: 1\ntools:\n  a: {max_attempts: 1.5}", "tools.a.max_attempts: must be a whole"),
        ("version: 1\ntools:\n  a: {max_attempts: 010}", "tools.a.max_attempts: YAML reads"),
        ("version: 1\ntools:\n  a: {concurrency: 0}", "tools.a.concurrency: must be a whole"),
        ("version: 1\ntools:\n  a: {description: 5}", "tools.a.description: must be a text"),
        ("version: 1\ntools:\n  a: {schema: 5}", "tools.a.schema: must be a mapping"),
        ("version: 1\ntools:\n  a: {schema: {type: strin}}", "not a JSON Schema of draft 2020-12"),
        ("version: 1\ntools:\n  a: {schema: {enum: [no]}}", r"tools.a.schema.enum[0]: YAML reads"),
        ("version: 1\ntools:\n  a: {schema: {const: 2020-01-01}}", "a YAML timestamp is not JSON"),
        ("version: 1\ntools:\n  a: {schema: {const: !!set {x}}}", "a YAML set is not JSON"),
        ("version: 1\ntools:\n  a: {arguments: text, schema: {}}", "free-text arguments has no"),
        ("version: 1\ntools:\n  on: {}", "a member name must be a text"),
        ("version: 1\ntools: &x {a: {}}\nmore: *x", "tools.yaml:3: aliases are not allowed"),
        ("version: 1\ntools: }", "tools.yaml:2:8: not YAML"),
        ("version: \x00", "tools.yaml: not YAML"),
    ],
)
def test_a_mistake_is_named_by_file_line_and_field(text: str, problem: str) -> None:
    """So that it can be found without guessing."""
    with pytest.raises(Misuse) as refused:
        parse_catalogue(text, "tools.yaml")
    assert problem in str(refused.value)


def test_size_and_depth_are_bounded_before_they_cost() -> None:
    """A bomb is refused, not unfolded."""
    with pytest.raises(Misuse, match="has more than"):
        parse_catalogue("#" * (CATALOGUE_BYTES_MAX + 1))
    deep = "{x: " * 100 + "1" + "}" * 100
    with pytest.raises(Misuse, match="levels deep"):
        parse_catalogue(f"version: 1\ntools:\n  a: {{schema: {deep}}}")
    with pytest.raises(Misuse):
        parse_catalogue("[" * 20_000)


def test_a_number_without_an_exact_form_has_no_digest() -> None:
    """Two catalogues must never share a digest by rounding."""
    with pytest.raises(Misuse, match="2\\^53"):
        parse_catalogue("version: 1\ntools:\n  a: {schema: {const: 9007199254740993}}")
