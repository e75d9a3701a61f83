"""House rule: the text of the project speaks of the project only."""

import re

from tests.tidy.tree import ROOT, name_of, text_files

# Each pattern with the reason it is refused. Kafka, Postgres and HTTP sessions are fine.
REFUSED = {
    r"\b(this|last|next|previous|earlier|coding|work(ing)?) session\b": "history of the making",
    r"\bsittings?\b": "history of the making",
    r"\b(issue|ticket|pull request|PR)s? ?#\d+": "a number that means nothing here",
    r"(?<![\w&/'\"#])#\d{2,5}(?![\w-])": "a number that means nothing here",
    r"\b(pypi|pythonhosted|maven\.org|repo1?\.maven|npmjs|golang)\.(org|apache|com)\b": "an index",
    r"\b(artifactory|nexus|devpi)\b": "a package index of a workplace",
    r"(?<![\w.])/(work|root|home)/[\w.]": "a path of a workplace",
    r"\bDESIGN(\.md| section| \d)": "a document that is not part of the project",
    r"\b(TODO|FIXME|XXX|HACK)\b": "an unfinished thing; finish it or write down the limit",
}
EXEMPT = frozenset({"tests/tidy/test_words.py"})


def test_no_text_refers_to_how_it_was_made() -> None:
    """No histories, issue numbers, index addresses, workplace paths or unfinished marks."""
    found = [
        f"{name_of(path)}:{number}: {match[0]!r} ({reason})"
        for path in text_files()
        if name_of(path) not in EXEMPT
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        for pattern, reason in REFUSED.items()
        if (match := re.search(pattern, line))
    ]
    assert not found, "\n".join(found)


def test_the_patterns_find_what_they_refuse() -> None:
    """Every pattern matches an example of its own, so the rule above can fail."""
    examples = (
        "in the last session",
        "a sitting",
        "see issue #12",
        "fixes #123",
        "https://" + "pypi.org" + "/simple",
        "an artifactory",
        "/work" + "/main",
        "DESIGN.md",
        "TODO",
    )
    for pattern, example in zip(REFUSED, examples, strict=True):
        assert re.search(pattern, example), pattern


def test_constraints_hold_names_and_versions_only() -> None:
    """The pins carry no address, no path and no option."""
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line), line
