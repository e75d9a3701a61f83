"""House rule: clocks, chance and the environment come in by a port, from the edge of the program.

An allowed file has its reason here; an entry that is not needed any more is an error.
"""

import ast

from tests.tidy.dotted import used_names
from tests.tidy.tree import name_of, parsed, python_files

CLOCKS = (
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
)
CHANCE = ("uuid.uuid1", "uuid.uuid4")
ENVIRONMENT = (
    "os.environ",
    "os.getenv",
    "os.environb",
    "os.putenv",
    "pydantic_settings.BaseSettings",
)

CLOCK_FILES = {
    "processor/app.py": "the composition root hands the real clock to the parts",
    "processor/cli/demo_story.py": "waiting with a bound at the border",
    "processor/devstack/waiting.py": "the one deadline of the dev stack",
    "processor/executor/ports.py": "the real clock behind the executor's port",
    "processor/publisher/clock.py": "the real clock behind the publisher's port",
    "processor/runtime/kafka_admin.py": "waiting with a bound at the border",
}
CHANCE_FILES: dict[str, str] = {}
ENVIRONMENT_FILES = {
    "processor/config.py": "reads the settings",
    "processor/devstack/places.py": "finds the user's folders",
    "processor/devstack/jars.py": "the download needs the user's proxy and certificate settings",
}
SLEEP = ("time.sleep", "asyncio.sleep")
SLEEP_FILES: dict[str, str] = {}


def test_clocks_are_read_only_at_the_edge() -> None:
    """Only the composition root and named edges read a clock; everybody else is given one."""
    check("processor", CLOCKS, CLOCK_FILES)


def test_chance_is_not_used() -> None:
    """Ids come from content and position: no uuid4, and no random module."""
    check("processor", CHANCE, CHANCE_FILES)
    check("processor", ("random",), CHANCE_FILES)


def test_the_environment_is_read_only_at_the_edge() -> None:
    """Only the configuration, the command line and the dev stack read environment variables."""
    check("processor", ENVIRONMENT, ENVIRONMENT_FILES, edge="processor/cli/")


def test_no_test_sleeps() -> None:
    """Tests wait on signals and conditions, never on time."""
    check("tests", SLEEP, SLEEP_FILES)


def test_no_mocks_where_everything_is_pure() -> None:
    """Tests of the pure rooms use the real thing."""
    pure = ("tests/unit/core/", "tests/unit/policy/", "tests/unit/dialects/", "tests/property/")
    users = [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files("tests")
        if name_of(path).startswith((*pure, "tests/exhaustive/"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom | ast.Import) and "unittest" in ast.unparse(node)
    ]
    assert not users


def check(
    folder: str, banned: tuple[str, ...], allowed: dict[str, str], *, edge: str = "\0"
) -> None:
    """Every use is in an allowed file or below `edge`; every allowed file has one."""
    uses = [
        (name_of(path), line, name)
        for path in python_files(folder)
        for line, name in used_names(parsed(path))
        if (name in banned or name.startswith(tuple(f"{b}." for b in banned)))
        and line not in yields_of(parsed(path))
    ]
    refused = [
        f"{path}:{line} {name}"
        for path, line, name in uses
        if path not in allowed and not path.startswith(edge)
    ]
    assert not refused, "\n".join(refused)
    assert set(allowed) <= {path for path, _, _ in uses}, (
        "an allowed file does not need it any more"
    )


def yields_of(tree: ast.Module) -> set[int]:
    """Lines with `sleep(0)`, which lets other tasks run and waits for no time."""
    return {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node).endswith("sleep(0)")
    }
