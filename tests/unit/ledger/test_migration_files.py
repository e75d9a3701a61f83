"""Which files are migrations, before any database is asked."""

from pathlib import Path

import pytest

from processor.core.errors import Misuse
from processor.ledger.migrate import read_migrations
from processor.resources import migrations_dir


def write(folder: Path, *names: str) -> Path:
    """Files of these names."""
    for name in names:
        (folder / name).write_text("SELECT 1")
    return folder


def test_the_files_are_read_in_order_with_number_phase_and_digest(tmp_path: Path) -> None:
    """Other files in the folder are no migrations."""
    folder = write(tmp_path, "0002_post_b.sql", "0001_pre_a.sql", "README.md")
    found = read_migrations(folder)
    assert [(m.number, m.phase, m.name) for m in found] == [
        (1, "pre", "0001_pre_a.sql"),
        (2, "post", "0002_post_b.sql"),
    ]
    assert len({m.sha256 for m in found}) == 1


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("0001_a.sql",), "0001_a.sql is not named"),
        (("1_pre_a.sql",), "1_pre_a.sql is not named"),
        (("0001_pre_a.sql", "0003_pre_b.sql"), "0003_pre_b.sql has number 3, 2 was expected"),
        (("0001_pre_a.sql", "0001_pre_b.sql"), "0001_pre_b.sql has number 1, 2 was expected"),
    ],
)
def test_a_name_that_does_not_fit_is_refused(
    tmp_path: Path, names: tuple[str, ...], problem: str
) -> None:
    """Two people who take one number find out before the database does."""
    with pytest.raises(Misuse, match=problem):
        read_migrations(write(tmp_path, *names))


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    """An empty schema must not look like a finished one."""
    with pytest.raises(Misuse, match="is not a folder"):
        read_migrations(tmp_path / "none")


def test_the_shipped_files_can_be_read() -> None:
    """All of them, from 1 on."""
    assert read_migrations(migrations_dir())[0].name == "0001_pre_roles.sql"
