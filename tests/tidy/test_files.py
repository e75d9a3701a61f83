"""House rule: the top level is fixed and nothing large is kept."""

from tests.tidy.tree import ROOT, all_files, name_of

FILE_BYTES_MAX = 512 * 1024
LARGE_FILES: dict[str, str] = {}
TOP_LEVEL = frozenset(
    {
        "LICENSE",
        "Makefile",
        "README.md",
        "constraints.txt",
        "helm",
        "migrations",
        "processor",
        "pyproject.toml",
        "schemas",
        "tests",
    }
)


def test_the_top_level_holds_only_what_belongs_there() -> None:
    """New things go into a room; dot files are the tools' own."""
    entries = {name_of(path).split("/")[0] for path in all_files()}
    assert {e for e in entries if not e.startswith(".")} <= TOP_LEVEL


def test_no_file_is_large() -> None:
    """A file has at most 512 KiB; fixtures are made, not kept."""
    large = {name_of(p) for p in all_files() if p.lstat().st_size > FILE_BYTES_MAX}
    assert large == set(LARGE_FILES)


def test_the_package_ships_schemas_and_migrations() -> None:
    """The folders the package reads at run time exist and are not empty."""
    for name in ("schemas", "migrations"):
        assert any((ROOT / name).iterdir())
