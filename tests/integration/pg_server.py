"""Postgres servers of a test's own: to stop, kill, copy and promote, and a PgBouncer in front.

The programs are those of the dev stack. Everything listens on the loopback only.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psycopg

from processor.devstack.places import ServiceUser, postgres_programs, service_user
from processor.devstack.reach import free_ports
from tests.integration.assembler_rig import wait_until

_START_S = 30


class Server:
    """One server; `start` after `stop` goes on with the same data. End it with `close`."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._user: ServiceUser | None = service_user()
        self.programs = postgres_programs(self._user)
        self.port = free_ports(1)[0]
        self.home = Path(tempfile.mkdtemp(prefix="toolcalls-pg-"))
        if self._user:
            os.chown(self.home, self._user.uid, self._user.gid)
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": "100",
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address, for the superuser, who needs no password on this loopback port."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """The server's first process."""
        assert self._process
        return self._process.pid

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.home / "data"

    def make(self) -> "Server":
        """Make the data and start."""
        self.run(
            "initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8",
            "--locale=C", "--no-sync", "--no-instructions",
        )  # fmt: skip
        return self.start()

    def copy_of(self, primary: "Server") -> "Server":
        """Become a streaming replica of `primary` and start."""
        self.run(
            "pg_basebackup", "-D", str(self.data), "-h", "127.0.0.1", "-p", str(primary.port),
            "-U", "postgres", "-R", "-X", "stream", "-c", "fast", "--no-sync",
        )  # fmt: skip
        return self.start()

    def start(self) -> "Server":
        """Start and wait until it answers."""
        options = [p for k, v in {**self._settings, "port": str(self.port)}.items()
                   for p in ("-c", f"{k}={v}")]  # fmt: skip
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self.programs / "postgres"), "-D", str(self.data), *options],
                stdout=log,
                stderr=log,
                cwd="/",
                user=self._user.uid if self._user else None,
                group=self._user.gid if self._user else None,
                extra_groups=[] if self._user else None,
            )
        wait_until(self._answers, "an answer of Postgres", timeout_s=_START_S)
        return self

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: sessions are cut. SIGQUIT: as a crash; the next start recovers."""
        assert self._process
        self._process.send_signal(how)
        self._process.wait(30)
        self._process = None

    def close(self) -> None:
        """Stop it if it runs, and delete everything."""
        if self._process is not None:
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.home, ignore_errors=True)

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the server's programs to its end."""
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            capture_output=True,
            cwd="/",
            check=False,
            timeout=60,
            user=self._user.uid if self._user else None,
            group=self._user.gid if self._user else None,
            extra_groups=[] if self._user else None,
        )
        assert done.returncode == 0, done.stderr.decode()[-2000:]

    def _answers(self) -> bool:
        assert self._process
        assert self._process.poll() is None, (self.home / "log").read_text()[-2000:]
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.Error:
            return False
        return True


class Pooler:
    """A PgBouncer in transaction mode before a server, with so few connections that they are shared."""

    def __init__(self, program: str, server: Server, connections: int) -> None:
        self.port = free_ports(1)[0]
        self.home = Path(tempfile.mkdtemp(prefix="toolcalls-pgb-"))
        (self.home / "users.txt").write_text('"postgres" ""\n')
        (self.home / "pgb.ini").write_text(
            "[databases]\n"
            f"* = host=127.0.0.1 port={server.port}\n"
            "[pgbouncer]\n"
            "listen_addr=127.0.0.1\n"
            f"listen_port={self.port}\n"
            "unix_socket_dir=\n"
            "auth_type=trust\n"
            f"auth_file={self.home}/users.txt\n"
            "pool_mode=transaction\n"
            f"default_pool_size={connections}\n"
        )
        user = service_user()
        for path in (self.home, *self.home.iterdir()):
            if user:
                os.chown(path, user.uid, user.gid)
        with (self.home / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [program, str(self.home / "pgb.ini")],
                stdout=log,
                stderr=log,
                user=user.uid if user else None,
                group=user.gid if user else None,
                extra_groups=[] if user else None,
            )
        wait_until(self._answers, "an answer of PgBouncer", timeout_s=10)

    @property
    def url(self) -> str:
        """The server's address through the pooler."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self.home / "log").read_text()[-2000:]
        try:
            psycopg.connect(self.url, connect_timeout=2, prepare_threshold=None).close()
        except psycopg.Error:
            return False
        return True

    def close(self) -> None:
        """Stop and delete."""
        self._process.kill()
        self._process.wait(10)
        shutil.rmtree(self.home, ignore_errors=True)
