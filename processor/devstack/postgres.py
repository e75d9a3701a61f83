"""One PostgreSQL server on the loopback, with a generated password and no durability.

Rules:
    The data folder gets its name only after initdb and the database were made completely.
    `fsync` is off: the data survives a killed process, not a killed machine.
    Root starts it as a system user, see `places`.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from processor.devstack.endpoints import Progress
from processor.devstack.errors import DevStackFailed
from processor.devstack.part import LOG_LINES
from processor.devstack.places import ServiceUser, postgres_home, postgres_programs
from processor.devstack.processes import Process, bare_environment, spawn
from processor.devstack.reach import postgres_answers
from processor.devstack.state import State

DATABASE = "toolcalls"
USER = "postgres"
POLITE = signal.SIGINT  # fast shutdown: sessions are cut, nothing is lost
PREPARE_TIMEOUT_S = 60.0
_HOST = "127.0.0.1"
_SETTINGS = {
    "listen_addresses": _HOST,
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "log_line_prefix": "%m [%p] ",
}


class Postgres:
    """The database server of the stack in `directory`."""

    title = "Postgres"

    def __init__(self, directory: Path, state: State, user: ServiceUser | None) -> None:
        self.home = postgres_home(directory, user)
        self.log = directory / "postgres.log"
        self._state = state
        self._user = user
        self._programs = postgres_programs(user)

    def prepare(self) -> Progress | None:
        """Make the folder; the data is made by `launch`."""
        self.home.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.home.mkdir(mode=0o700, exist_ok=True)
        if self._user:
            os.chown(self.home, self._user.uid, self._user.gid)
        if (self.home / "data").is_dir():
            return None
        return Progress("prepare", "making Postgres's data folder")

    def launch(self) -> Process:
        """Make the data when there is none, start the server; it does not answer yet.

        Raises: `DevStackFailed` with the end of a program's output.
        """
        if not (self.home / "data").is_dir():
            self._make_data()
        # No server and no child of one is left at this point, see `stack`. Its lock file would
        # stop the start where nobody collects dead processes (pid 1 of many containers).
        (self.home / "data" / "postmaster.pid").unlink(missing_ok=True)
        settings = {**_SETTINGS, "port": str(self._state.postgres_port)}
        options = [part for k, v in settings.items() for part in ("-c", f"{k}={v}")]
        return spawn(
            [str(self._programs / "postgres"), "-D", str(self.home / "data"), *options],
            self.log,
            run_as=self._user.popen_arguments() if self._user else None,
        )

    def answers(self) -> bool:
        """True when the server has finished its start (it answers the network before that)."""
        try:
            lines = (self.home / "data" / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        ready = len(lines) > 7 and lines[7].strip() == "ready"
        return ready and postgres_answers(_HOST, self._state.postgres_port)

    def _make_data(self) -> None:
        fresh = self.home / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        password = self.home / "password"
        password.unlink(missing_ok=True)
        descriptor = os.open(password, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(self._state.password)
            if self._user:
                os.chown(password, self._user.uid, self._user.gid)
            self._run(
                "initdb", "-D", str(fresh), "-U", USER, "-A", "scram-sha-256",
                f"--pwfile={password}", "-E", "UTF8", "--locale=C", "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8", "--no-sync", "--no-instructions",
            )  # fmt: skip
        finally:
            password.unlink(missing_ok=True)
        self._run(
            "postgres", "--single", "-D", str(fresh), "postgres", text=f"CREATE DATABASE {DATABASE}"
        )
        fresh.rename(self.home / "data")

    def _run(self, program: str, *arguments: str, text: str = "") -> None:
        """Run one of the server's programs to its end, in a session of its own."""
        command = [str(self._programs / program), *arguments]
        run_as = self._user.popen_arguments() if self._user else {}
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
            env=bare_environment(),
            start_new_session=True,
            **run_as,  # type: ignore[call-overload]  # user, group, extra_groups
        )
        try:
            output, _ = child.communicate(text, timeout=PREPARE_TIMEOUT_S)
        finally:
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if child.returncode:
            tail = "\n".join(output.strip().splitlines()[-LOG_LINES:])
            raise DevStackFailed(f"Postgres: {program} failed (status {child.returncode}):\n{tail}")


def database_url(state: State) -> str:
    """The address of the database, with its password."""
    return f"postgresql://{USER}:{state.password}@{_HOST}:{state.postgres_port}/{DATABASE}"
