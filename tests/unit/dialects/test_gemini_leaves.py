"""Gemini: leaves by JSON path become one object, or refuse their call."""

import pytest

from tests.unit.dialects.value_wires import CLOSE, gemini, head, leaf, leaves
from tests.unit.dialects.verdicts import verdicts
from tests.unit.dialects.wires import Chunk

STOP = gemini(finish="STOP")


def of(*each: Chunk) -> str:
    """The verdict of a call that has these leaves, each in a chunk of its own."""
    parts = [gemini(leaves(one)) for one in each]
    (verdict,) = verdicts("gemini", [gemini(head()), *parts, gemini(CLOSE), STOP]).values()
    return verdict


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("$.a", '{"a":1}'),
        ("$.order-id", '{"order-id":1}'),
        ("$.a.b[0].c", None),
        ("$.straße", '{"straße":1}'),
        ("$['a b']", '{"a b":1}'),
        ('$["a.b"]', '{"a.b":1}'),
        ("$['it\\'s \"x\" \\u00e9 \\\\']", '{"it\'s \\"x\\" é \\\\":1}'),
        ("$['']", '{"":1}'),
        ("$.a[0][0]", '{"a":[[1]]}'),
        ("$.0", '{"0":1}'),
    ],
)
def test_a_path_of_names_and_positions_is_followed(path: str, text: str | None) -> None:
    """Plain and quoted names, positions, in any nesting."""
    assert of(leaf(path, 1)) == (text or '{"a":{"b":[{"c":1}]}}')


@pytest.mark.parametrize(
    "path",
    [
        "",
        "$",
        "a",
        ".a",
        "$a",
        "$.",
        "$..a",
        "$.*",
        "$[*]",
        "$.a[-1]",
        "$.a[01]",
        "$.a[0:2]",
        "$.a[?@.b]",
        "$.a b",
        "$['a",
        "$['a'",
        "$['\\x']",
        "$['\n']",
        "$[0]",
        None,
        7,
    ],
)
def test_any_other_path_refuses_the_call(path: object) -> None:
    """Queries with several answers, other roots, and texts that are no path."""
    assert of({"jsonPath": path, "numberValue": 1}) == "malformed_event"


def test_every_kind_of_value_is_taken_as_it_is() -> None:
    """Texts with any characters, numbers, both booleans, and null in its two spellings."""
    values = ['é\n"\\', 3, -0.5, 10**20, True, False, None]
    each = [leaf(f"$.v[{n}]", value) for n, value in enumerate(values)]
    word: Chunk = {"jsonPath": "$.w", "nullValue": "NULL_VALUE"}
    text = '{"v":["é\\n\\"\\\\",3,-0.5,100000000000000000000,true,false,null],"w":null}'
    assert of(*each, word) == text


def test_fields_that_are_null_are_absent() -> None:
    """What a program writes that leaves nothing out."""
    full: Chunk = {"boolValue": None, "nullValue": None, "numberValue": None, "willContinue": None}
    assert of({**full, "jsonPath": "$.a", "stringValue": "x"}) == '{"a":"x"}'


def test_members_stand_in_the_order_of_arrival_and_elements_at_their_place() -> None:
    """The only order that the wire has."""
    each = [leaf("$.b[1]", 2), leaf("$.a.y", 3), leaf("$.b[0]", 1), leaf("$.a.x", 4)]
    assert of(*each) == '{"b":[1,2],"a":{"y":3,"x":4}}'


def test_pieces_of_a_text_join_until_one_that_announces_no_more() -> None:
    """Empty pieces, pieces without a value, and characters cut in half between two."""
    pieces = [leaf("$.a", text, goes_on=True) for text in ("Os", "", "lo \ud83d")]
    assert of(*pieces, leaf("$.a", "\ude00")) == '{"a":"Oslo \U0001f600"}'
    assert of(*pieces[:2], leaf("$.b", 1), {"jsonPath": "$.a"}) == '{"a":"Os","b":1}'
    assert of(*pieces, leaf("$.a", "x")) == "invalid_utf8"


@pytest.mark.parametrize("again", ["lo", "", 1, None])
def test_a_leaf_is_set_once(again: object) -> None:
    """Whatever the second value is, nobody knows which was meant."""
    assert of(leaf("$.a", "Oslo"), leaf("$.a", again)) == "duplicate_member"
    assert of(leaf("$['a']", "Oslo"), leaf("$.a", again)) == "duplicate_member"


@pytest.mark.parametrize(
    "each",
    [
        [leaf("$.a", "Os", goes_on=True)],
        [leaf("$.a", "Os", goes_on=True), leaf("$.a", 1)],
        [leaf("$.a", 1, goes_on=True)],
        [leaf("$.a[1]", 1)],
        [leaf("$.a[0]", 1), leaf("$.a[2]", 1)],
        [leaf("$.a", 1), leaf("$.a.b", 1)],
        [leaf("$.a[0]", 1), leaf("$.a.b", 1)],
        [leaf("$.a.b", 1), leaf("$.a[0]", 1)],
        [{"jsonPath": "$.a"}],
        [{"jsonPath": "$.a", "structValue": {}}],
        [{"jsonPath": "$.a", "numberValue": "NaN"}],
        [{"jsonPath": "$.a", "numberValue": True}],
        [{"jsonPath": "$.a", "boolValue": 1}],
        [{"jsonPath": "$.a", "stringValue": 1}],
        [{"jsonPath": "$.a", "nullValue": 0}],
        [{"jsonPath": "$.a", "stringValue": "x", "numberValue": 1}],
        [{"jsonPath": "$.a", "stringValue": "x", "nullValue": "NULL_VALUE"}],
        [{"jsonPath": "$.a", "stringValue": "x", "willContinue": "no"}],
    ],
)
def test_leaves_that_contradict_or_miss_something_refuse_the_call(each: list[Chunk]) -> None:
    """Texts without an end, missing elements, two shapes of one value, values of no kind."""
    assert of(*each) == "malformed_event"


def test_a_container_and_a_leaf_of_one_path_are_one_too_many() -> None:
    """In either order the call is refused."""
    assert of(leaf("$.a.b", 1), leaf("$.a", 1)) == "duplicate_member"


def test_the_depth_of_a_path_is_bounded() -> None:
    """No input spends the stack."""
    assert of(leaf("$" + ".a" * 64, 1)).startswith('{"a":')
    assert of(leaf("$" + ".a" * 65, 1)) == "too_deep"
    assert of(leaf("$.a" + "[0]" * 10_000, 1)) == "too_deep"
    assert of(leaf("$" + ".a" * 100_000, 1)) == "too_deep"


def test_a_number_that_is_not_finite_is_refused_by_its_name() -> None:
    """A program's own objects may hold one."""
    assert of(leaf("$.a", float("nan"))) == "non_finite_number"


def test_a_float_that_an_sdk_made_of_an_integer_is_that_integer_or_refused() -> None:
    """Google's SDK holds every number as a float; one that may have been rounded is not written."""
    assert of(leaf("$.a", 3.0)) == '{"a":3}'
    assert of(leaf("$.a", 0.5)) == '{"a":0.5}'
    assert of(leaf("$.a", 2.0**53 - 1)) == '{"a":9007199254740991}'
    assert of(leaf("$.a", 2.0**53)) == "number_out_of_range"
