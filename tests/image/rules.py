"""What a hardened image is: rules over its configuration, its files and its running process."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

SHELLS = frozenset({"sh", "ash", "bash", "dash", "busybox", "zsh"})
UNWANTED = SHELLS | {"apt", "apt-get", "cc", "dpkg", "gcc", "ld", "make", "pip", "pip3", "perl"}
"""Programs that an image of a server has no use for."""
LABELS = ("title", "description", "version", "revision", "licenses")
USER_ID = 10001


class HealthCheck(NamedTuple):
    """What an engine runs to learn whether a container is healthy."""

    test: tuple[str, ...]
    interval_s: float
    timeout_s: float
    start_period_s: float


class ImageConfig(NamedTuple):
    """What an image says about how it is run."""

    user: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    environment: dict[str, str]
    volumes: tuple[str, ...]
    ports: tuple[str, ...]
    stop_signal: str
    working_directory: str
    labels: dict[str, str]
    health: HealthCheck | None


def parse_config(document: Mapping[str, Any]) -> ImageConfig:
    """Return the configuration in Docker's form of it, as `buildah inspect` has it."""
    health = document.get("Healthcheck")
    return ImageConfig(
        user=document.get("User") or "",
        entrypoint=tuple(document.get("Entrypoint") or ()),
        command=tuple(document.get("Cmd") or ()),
        environment=dict(pair.split("=", 1) for pair in document.get("Env") or ()),
        volumes=tuple(document.get("Volumes") or ()),
        ports=tuple(document.get("ExposedPorts") or ()),
        stop_signal=document.get("StopSignal") or "SIGTERM",
        working_directory=document.get("WorkingDir") or "/",
        labels=dict(document.get("Labels") or {}),
        health=None
        if health is None
        else HealthCheck(
            tuple(health["Test"]),
            health.get("Interval", 0) / 1e9,
            health.get("Timeout", 0) / 1e9,
            health.get("StartPeriod", 0) / 1e9,
        ),
    )


def config_problems(config: ImageConfig) -> list[str]:
    """Return what is wrong with how an image says that it is run; empty where nothing is."""
    problems = []
    ids = config.user.split(":")
    if len(ids) != 2 or not all(one.isdecimal() for one in ids) or "0" in ids:
        problems.append(f"its user is {config.user or 'root'!r}, not the numbers of another")
    for name, program in (("entrypoint", config.entrypoint), ("command", config.command)):
        if program and program[0].rsplit("/", 1)[-1] in SHELLS:
            problems.append(f"its {name} is run by a shell")
    if not config.entrypoint:
        problems.append("it has no entrypoint")
    if config.stop_signal not in {"SIGTERM", "15"}:
        problems.append(f"it is stopped with {config.stop_signal}")
    health = config.health
    if health is None or health.test[:1] == ("NONE",):
        problems.append("it has no health check")
    elif health.test[0] != "CMD" or health.test[1].rsplit("/", 1)[-1] in SHELLS:
        problems.append("its health check needs a shell")
    elif not 0 < health.timeout_s < health.interval_s:
        problems.append("a health check may last longer than the time to the next one")
    if not config.volumes:
        problems.append("it names no volume")
    missing = [name for name in LABELS if not config.labels.get(f"org.opencontainers.image.{name}")]
    if missing:
        problems.append(f"labels are missing: {', '.join(missing)}")
    return problems


class FileFacts(NamedTuple):
    """What is known of one file of an image."""

    path: str
    mode: int
    user_id: int


def read_facts(root: Path) -> list[FileFacts]:
    """Return the facts of everything below a root."""
    found = []
    for path in root.rglob("*"):
        status = path.lstat()
        name = "/" + str(path.relative_to(root))
        found.append(FileFacts(name, status.st_mode, status.st_uid))
    return found


def root_problems(files: Iterable[FileFacts], volumes: Iterable[str]) -> list[str]:
    """Return what a root file system has that it should not have, or lacks."""
    problems = []
    volumes = tuple(volumes)
    owners = {}
    compiled = False
    for path, mode, user_id in files:
        owners[path] = user_id
        name = path.rsplit("/", 1)[-1]
        is_program = not stat.S_ISDIR(mode) and path.rsplit("/", 2)[-2] in {"bin", "sbin"}
        compiled = compiled or name.endswith(".pyc")
        if is_program and name in UNWANTED:
            problems.append(f"{path} is a program that a server has no use for")
        if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
            problems.append(f"{path} gives its user another's rights")
        is_shared = stat.S_ISDIR(mode) and mode & stat.S_ISVTX
        if not stat.S_ISLNK(mode) and mode & stat.S_IWOTH and not is_shared:
            problems.append(f"{path} can be written by everybody")
        if user_id != 0 and path not in volumes:
            problems.append(f"{path} is owned by {user_id}, not by root")
    problems += [
        f"{volume} is not owned by {USER_ID}: a new volume would be root's"
        for volume in volumes
        if owners.get(volume) != USER_ID
    ]
    if not compiled:
        problems.append("nothing is compiled: each start would do it again")
    return problems


class ProcessFacts(NamedTuple):
    """How the kernel runs the first process of a container."""

    user_ids: frozenset[int]
    capabilities: int
    no_new_privileges: bool
    seccomp: int
    pid_inside: int
    is_root_read_only: bool
    memory_limit_bytes: int


def parse_process(status: str, mounts: str, memory_limit_bytes: int) -> ProcessFacts:
    """Return the facts of `/proc/PID/status` and `/proc/PID/mountinfo`."""
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    root = next(words[5] for words in map(str.split, mounts.splitlines()) if words[4] == "/")
    ids = [*fields["Uid"].split(), *fields["Gid"].split(), *fields["Groups"].split()]
    capabilities = 0
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        capabilities |= int(fields[name], 16)
    return ProcessFacts(
        user_ids=frozenset(map(int, ids)),
        capabilities=capabilities,
        no_new_privileges=fields["NoNewPrivs"] == "1",
        seccomp=int(fields["Seccomp"]),
        pid_inside=int(fields["NSpid"].split()[-1]),
        is_root_read_only="ro" in root.split(","),
        memory_limit_bytes=memory_limit_bytes,
    )


def process_problems(facts: ProcessFacts, memory_bytes: int) -> list[str]:
    """Return where a process has more than a hardened container gives."""
    problems = []
    if facts.user_ids != {USER_ID}:
        problems.append(f"it runs with the ids {sorted(facts.user_ids)}")
    if facts.capabilities:
        problems.append(f"it has the capabilities {facts.capabilities:#x}")
    if not facts.no_new_privileges:
        problems.append("a program that it starts may get more rights")
    if facts.seccomp != 2:
        problems.append("no filter of system calls is on")
    if facts.pid_inside != 1:
        problems.append(f"it is process {facts.pid_inside} in there, not the first")
    if not facts.is_root_read_only:
        problems.append("its root file system can be written")
    if facts.memory_limit_bytes != memory_bytes:
        problems.append(f"its memory is limited to {facts.memory_limit_bytes}")
    return problems


class HealthFacts(NamedTuple):
    """What is said of one state of a gateway."""

    is_live: bool | None
    """None where nothing answers."""
    is_ready: bool
    is_healthy: bool
    """What the image's own health check says."""


def health_problems(state: str, facts: HealthFacts, *, is_ready: bool) -> list[str]:
    """Return where a state is told of wrongly; the process lives in every one of them."""
    problems = []
    if facts.is_live is not True:
        problems.append(f"{state}: it is not said to live")
    if facts.is_ready != is_ready:
        problems.append(f"{state}: /health/ready says {'' if facts.is_ready else 'not '}ready")
    if facts.is_healthy != is_ready:
        word = "healthy" if facts.is_healthy else "unhealthy"
        problems.append(f"{state}: the image's health check says {word}")
    return problems
