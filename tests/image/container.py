"""The image as a container: an OCI runtime runs it as a hardened `docker run` would.

Whoever uses it is in a network namespace and a mount namespace of its own; see `__main__`.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import signal
import subprocess
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.testing.process import SERVE, GatewayProcess
from tests.image import oci
from tests.image.building import load
from tests.image.rules import parse_process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.image.building import Image
    from tests.image.rules import ProcessFacts

CGROUPS = Path("/sys/fs/cgroup")
SECCOMP = Path("/usr/share/containers/seccomp.json")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LISTENER_PORT = 9092
ADMIN_PORT = 9644
PREFIX = "kgw-image-"
"""How the names of its containers and control groups begin."""
PROOF = "KGW_IMAGE_PROOF"
"""The variable with the name of one proof: others may run beside it."""
ENDS_WITHIN_S = 30.0
DESCRIPTORS = min(20_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
USUAL_LIMITS = oci.Limits(descriptors=DESCRIPTORS)


def seccomp() -> dict[str, Any] | None:
    """Return the filter of system calls that container engines have as their default."""
    if not SECCOMP.exists():
        return None
    machine = platform.machine()
    return oci.seccomp_of(json.loads(SECCOMP.read_text()), ARCHITECTURES.get(machine, machine))


class MemoryGroup(NamedTuple):
    """Where the control group of memory is, below the place where groups are mounted."""

    path: str
    is_first_version: bool


def memory_group(said: str) -> MemoryGroup:
    """Return that of a process, by its `/proc/PID/cgroup`.

    Where both versions are mounted, memory is usually of the first. Raises ValueError where there
    is neither.
    """
    lines = [line.split(":", 2) for line in said.splitlines()]
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            return MemoryGroup(f"memory{path}", is_first_version=True)
    for number, _, path in lines:
        if number == "0":
            return MemoryGroup(path.lstrip("/"), is_first_version=False)
    raise ValueError("no control group limits memory")


class Cgroup:
    """The control group of a process, of whichever version: what it may use and has used."""

    def __init__(self, pid: int) -> None:
        """Find it. Raises OSError when there is no such process."""
        group = memory_group(Path(f"/proc/{pid}/cgroup").read_text())
        self._memory = CGROUPS / group.path
        self._is_first_version = group.is_first_version

    def _number(self, first: str, second: str) -> int:
        name = first if self._is_first_version else second
        return int((self._memory / name).read_text())

    @property
    def limit_bytes(self) -> int:
        """How much memory its processes may use together."""
        return self._number("memory.limit_in_bytes", "memory.max")

    @property
    def peak_bytes(self) -> int:
        """The most that they have used, files that the kernel keeps for them included."""
        return self._number("memory.max_usage_in_bytes", "memory.peak")

    @property
    def out_of_memory_kills(self) -> int:
        """How many of its processes the kernel has killed for want of memory."""
        name = "memory.oom_control" if self._is_first_version else "memory.events"
        fields = dict(line.split() for line in (self._memory / name).read_text().splitlines())
        return int(fields["oom_kill"])


class GatewayContainer(GatewayProcess):
    """The image over one data directory as its volume.

    A first start takes a free port, as with `GatewayProcess`; with `as_shipped` the image listens
    where it does by itself, on 9092 and 9644 of the namespace, and `settings` come as variables.
    """

    def __init__(
        self,
        data_dir: Path,
        *settings: str,
        image: Image | None = None,
        as_shipped: bool = False,
        limits: oci.Limits = USUAL_LIMITS,
        hardening: oci.Hardening | None = None,
        program: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`program` takes the place of the image's entrypoint, for controls."""
        super().__init__(data_dir, port=LISTENER_PORT if as_shipped else 0)
        self.image = load() if image is None else image
        self.limits = limits
        self.bundle = data_dir.with_name(data_dir.name + ".bundle")
        self.name = ""
        self._settings = settings
        self._as_shipped = as_shipped
        self._hardening = hardening or oci.Hardening()
        self._program = tuple(program)
        self._variables = dict(env or {})

    @property
    def pid(self) -> int:
        """Process id, out here, of the container's first process."""
        return int((self.bundle / "pid").read_text())

    @property
    def cgroup(self) -> Cgroup:
        """Its control group."""
        return Cgroup(self.pid)

    def begin_to_start(self) -> None:
        """Start it and return at once."""
        self._make_volume()
        self.name = _own_prefix() + token_hex(4)
        arguments: list[str] = []
        if not self._as_shipped:
            arguments = ["--listen", f"0.0.0.0:{self.port}"]
            if not any(one.startswith("kgw.admin.listeners=") for one in self._settings):
                arguments += ["--set", "kgw.admin.listeners="]
        for setting in self._settings:
            arguments += ["--set", setting]
        config = self.image.config
        if self._program:
            config, arguments = config._replace(entrypoint=self._program), []
        spec = oci.runtime_spec(
            config,
            str(self.image.root),
            str(self.data_dir.absolute()),
            f"/{self.name}",
            arguments=arguments,
            environment=self._variables,
            limits=self.limits,
            hardening=self._hardening,
            seccomp=seccomp(),
        )
        self.bundle.mkdir(exist_ok=True)
        (self.bundle / "pid").unlink(missing_ok=True)
        (self.bundle / "config.json").write_text(json.dumps(spec, indent=1))
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._runtime("run", "--bundle", str(self.bundle)),
                    *("--pid-file", str(self.bundle / "pid"), self.name),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, as an engine does. One that has ended does not get it."""
        subprocess.run(
            self._runtime("kill", self.name, str(int(number))), check=False, capture_output=True
        )

    def stop(self, timeout_s: float = ENDS_WITHIN_S) -> int:
        """Send the image's stop signal; return the container's exit code.

        Raises subprocess.TimeoutExpired, and has killed it then.
        """
        self.signal(signal.Signals[self.image.config.stop_signal])
        return self.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL, as an engine sends it when the time to stop is over."""
        self.signal(signal.SIGKILL)
        self.wait(ENDS_WITHIN_S)

    def wait(self, timeout_s: float = ENDS_WITHIN_S) -> int:
        """Wait for its end and return its exit code; nothing of it is left in the runtime.

        Raises subprocess.TimeoutExpired, and has killed it then.
        """
        process = self._process
        assert process is not None
        self._process = None
        try:
            return process.wait(timeout=timeout_s)
        finally:
            subprocess.run(
                self._runtime("delete", "--force", self.name), check=False, capture_output=True
            )
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program in it, as an engine does for a health check."""
        return subprocess.run(
            self._runtime("exec", self.name, *command),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=ENDS_WITHIN_S,
            check=False,
        )

    def is_healthy(self, test: Sequence[str] | None = None) -> bool:
        """Whether the image's health check, or another one, says so."""
        if test is None:
            health = self.image.config.health
            assert health is not None
            test = health.test
        assert test[0] == "CMD"
        return self.execute(*test[1:]).returncode == 0

    def facts(self) -> ProcessFacts:
        """How the kernel runs its first process."""
        folder = Path(f"/proc/{self.pid}")
        return parse_process(
            (folder / "status").read_text(),
            (folder / "mountinfo").read_text(),
            self.cgroup.limit_bytes,
        )

    def _make_volume(self) -> None:
        """Make the volume as an engine makes a new one: as the image has its folder."""
        place = self.image.root / self.image.config.volumes[0].lstrip("/")
        if not self.data_dir.exists():
            self.data_dir.mkdir()
        if not any(self.data_dir.iterdir()):
            status = place.stat()
            os.chown(self.data_dir, status.st_uid, status.st_gid)
            self.data_dir.chmod(status.st_mode & 0o7777)

    def _runtime(self, *arguments: str) -> list[str]:
        return ["runc", "--root", str(_state()), *arguments]


def contain(data_dir: Path, *settings: str, command: Sequence[str] = SERVE) -> GatewayContainer:
    """Return a container for tests that take any gateway.

    Raises ValueError for one that is to run something else than the image does.
    """
    if command != SERVE:
        raise ValueError(f"a container runs kgw serve, not {' '.join(command)}")
    return GatewayContainer(data_dir, *settings)


def remove_left_over() -> list[str]:
    """Remove control groups that nobody uses; return those of this proof that are still used."""
    left = []
    shutil.rmtree(_state(), ignore_errors=True)
    for folder in sorted(CGROUPS.glob(f"**/{PREFIX}*")):
        try:
            folder.rmdir()
        except OSError:
            if folder.name.startswith(_own_prefix()):
                left.append(str(folder))
    return left


def _state() -> Path:
    """Where the runtime keeps what it knows of this proof; another may have been killed."""
    return Path("/run", f"{_own_prefix()}state")


def _own_prefix() -> str:
    return f"{PREFIX}{os.environ.get(PROOF, 'alone')}-"
