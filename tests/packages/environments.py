"""Fresh virtual environments without a compiler, and the servers that are started from them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.loads.frames import API_VERSIONS_V0, connect, exchange
from tests.signals import send_to_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMPILERS = ("cc", "gcc", "c++", "g++", "clang", "cargo", "rustc")
ANSWER_LIMIT_S = 60.0
STOP_LIMIT_S = 15.0
TRIED_EVERY_S = 0.002
OF_THE_PROJECT = ("KGW_", "PYTHON", "VIRTUAL_ENV")


class CommandFailedError(Exception):
    """A command that has to succeed did not; the text is what it said."""


class Environment:
    """A virtual environment, whose commands find nothing but each other."""

    def __init__(self, folder: Path, *, path: str = "", has_pip: bool = True) -> None:
        """Make it; `path` has the folders of other programs that its commands need."""
        self.folder = folder
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(OF_THE_PROJECT)
        }
        self.variables = {**kept, "PATH": f"{folder}/bin:{path}".rstrip(":")}
        if not path:
            compilers = [one for one in COMPILERS if shutil.which(one, path=self.variables["PATH"])]
            assert not compilers, compilers
        without = [] if has_pip else ["--without-pip"]
        run_command([sys.executable, "-m", "venv", *without, str(folder)], dict(os.environ))

    def run(self, *command: str, cwd: Path | None = None, **variables: str) -> str:
        """Run a command of the environment and return what it prints. CommandFailedError.

        In the environment's folder unless told: Python would import what lies in the checkout.
        """
        words = [f"{self.folder}/bin/{command[0]}", *command[1:]]
        return run_command(words, {**self.variables, **variables}, cwd=cwd or self.folder)

    def install(self, *arguments: str, cwd: Path | None = None) -> float:
        """Install with pip, of wheels alone, and return the seconds. CommandFailedError."""
        began_s = time.monotonic()
        self.run("pip", "install", "--quiet", "--only-binary", ":all:", *arguments, cwd=cwd)
        return time.monotonic() - began_s

    def packages(self) -> dict[str, str]:
        """Return what is installed, but for pip, by normalized name."""
        lines = self.run("pip", "list", "--format", "freeze", "--exclude", "pip").splitlines()
        return dict(line.lower().replace("_", "-").split("==") for line in lines)

    @contextmanager
    def serving(self, data_dir: Path, *arguments: str) -> Iterator[Server]:
        """Serve until the end; the server has answered. It has to stop cleanly.

        Its data is in a directory, unless `--backend` says otherwise.
        """
        command = [f"{self.folder}/bin/kgw", "serve", *arguments]
        if "--backend" not in arguments:
            command += ["--data-dir", str(data_dir)]
        server = Server(command, self.variables, data_dir.parent)
        try:
            server.wait()
            yield server
            server.stop()
        finally:
            server.kill()


class Server:
    """A process of `kgw serve`, or of what runs it, on a port of its own."""

    def __init__(self, command: list[str], variables: dict[str, str], cwd: Path) -> None:
        self.address = ("127.0.0.1", free_port())
        self.bootstrap = f"127.0.0.1:{self.address[1]}"
        cwd.mkdir(parents=True, exist_ok=True)
        self._errors = cwd / f"serve-{self.address[1]}.log"
        self._began_s = time.monotonic()
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*command, "--listen", self.bootstrap],
                env=variables,
                cwd=cwd,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                # To be stopped with what it starts.
                start_new_session=True,
            )
        self.answered_after_ms = 0.0

    def wait(self) -> None:
        """Ask until ApiVersions is answered. CommandFailedError where that does not come."""
        while True:
            try:
                with connect(self.address) as connection:
                    exchange(connection, API_VERSIONS_V0)
            except ConnectionError:
                is_late = time.monotonic() - self._began_s > ANSWER_LIMIT_S
                if is_late or self.process.poll() is not None:
                    raise CommandFailedError(
                        f"no answer of kgw serve: {self._errors.read_text()}"
                    ) from None
                time.sleep(TRIED_EVERY_S)
            else:
                self.answered_after_ms = (time.monotonic() - self._began_s) * 1e3
                return

    def memory_mb(self) -> dict[str, float]:
        """Return what the process holds: anonymous, of files, and both."""
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        lines = dict(line.split(":", 1) for line in status)
        anonymous, of_files, shared = (
            int(lines[name].split()[0]) * 1024 / 1e6 for name in ("RssAnon", "RssFile", "RssShmem")
        )
        return {
            "anonymous": anonymous,
            "file": of_files,
            "total": anonymous + of_files + shared,
        }

    def stop(self) -> None:
        """End it by SIGTERM, which uvx passes on. CommandFailedError where the code is not 0."""
        self.process.terminate()
        code = self.process.wait(STOP_LIMIT_S)
        if code != 0:
            raise CommandFailedError(f"exit code {code}: {self._errors.read_text()}")

    def kill(self) -> None:
        """End it, if it runs."""
        if self.process.poll() is None:
            send_to_group(self.process.pid, signal.SIGKILL)
            self.process.wait()


def run_command(command: list[str], variables: dict[str, str], *, cwd: Path | None = None) -> str:
    """Run a command and return what it prints. CommandFailedError with what it said."""
    done = subprocess.run(
        command, check=False, env=variables, cwd=cwd, capture_output=True, text=True
    )
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise CommandFailedError(f"{' '.join(command)}: exit code {done.returncode}\n{said}")
    return done.stdout


def refusal_of(command: Callable[[], object]) -> str:
    """Return what is said by a command that has to fail. CommandFailedError where it does not."""
    try:
        command()
    except CommandFailedError as error:
        return str(error)
    raise CommandFailedError("what has to fail did not")


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
