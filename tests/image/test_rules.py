"""The rules of a hardened image: what is right passes, and each thing that is wrong is named."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

import pytest

from tests.image.rules import (
    FileFacts,
    HealthCheck,
    HealthFacts,
    ImageConfig,
    ProcessFacts,
    config_problems,
    health_problems,
    parse_config,
    parse_process,
    process_problems,
    read_facts,
    root_problems,
)

if TYPE_CHECKING:
    from pathlib import Path

HEALTH = HealthCheck(("CMD", "python", "-m", "kgw.admin.probe"), 10, 5, 30)
GOOD = ImageConfig(
    user="10001:10001",
    entrypoint=("kgw", "serve"),
    command=(),
    environment={"PATH": "/opt/kgw/bin"},
    volumes=("/var/lib/kgw",),
    ports=("9092/tcp",),
    stop_signal="SIGTERM",
    working_directory="/",
    labels={
        f"org.opencontainers.image.{name}": "x"
        for name in ("title", "description", "version", "revision", "licenses")
    },
    health=HEALTH,
)
DOCUMENT: dict[str, Any] = {
    "User": "10001:10001",
    "Env": ["PATH=/opt/kgw/bin"],
    "Entrypoint": ["kgw", "serve"],
    "Cmd": None,
    "Volumes": {"/var/lib/kgw": {}},
    "ExposedPorts": {"9092/tcp": {}},
    "Labels": GOOD.labels,
    "Healthcheck": {
        "Test": ["CMD", "python", "-m", "kgw.admin.probe"],
        "Interval": 10_000_000_000,
        "Timeout": 5_000_000_000,
        "StartPeriod": 30_000_000_000,
    },
}
FILES = (
    FileFacts("/opt", stat.S_IFDIR | 0o755, 0),
    FileFacts("/opt/kgw/bin/kgw", stat.S_IFREG | 0o755, 0),
    FileFacts("/opt/kgw/lib/sh", stat.S_IFREG | 0o644, 0),
    FileFacts("/usr/lib/python3.11/os.pyc", stat.S_IFREG | 0o644, 0),
    FileFacts("/tmp", stat.S_IFDIR | stat.S_ISVTX | 0o777, 0),
    FileFacts("/var/lib/kgw", stat.S_IFDIR | 0o755, 10001),
)
PROCESS = ProcessFacts(frozenset({10001}), 0, True, 2, 1, True, 256 << 20)


def test_reading_a_configuration() -> None:
    """Docker's form of it, with what may be missing."""
    assert GOOD == parse_config(DOCUMENT)
    bare = parse_config({})
    assert (None, "", "SIGTERM") == (bare.health, bare.user, bare.stop_signal)


def test_a_hardened_configuration() -> None:
    """Nothing is wrong with it."""
    assert [] == config_problems(GOOD)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"user": ""}, "its user is 'root'"),
        ({"user": "kgw"}, "its user is 'kgw'"),
        ({"user": "10001"}, "its user is '10001'"),
        ({"user": "0:0"}, "its user is '0:0'"),
        ({"user": "10001:0"}, "its user is '10001:0'"),
        ({"entrypoint": ()}, "it has no entrypoint"),
        ({"entrypoint": ("/bin/sh", "-c", "kgw")}, "its entrypoint is run by a shell"),
        ({"command": ("bash",)}, "its command is run by a shell"),
        ({"stop_signal": "SIGKILL"}, "it is stopped with SIGKILL"),
        ({"health": None}, "it has no health check"),
        ({"health": HEALTH._replace(test=("NONE",))}, "it has no health check"),
        ({"health": HEALTH._replace(test=("CMD-SHELL", "x"))}, "its health check needs a shell"),
        ({"health": HEALTH._replace(test=("CMD", "/bin/sh"))}, "its health check needs a shell"),
        ({"health": HEALTH._replace(timeout_s=20)}, "a health check may last longer"),
        ({"volumes": ()}, "it names no volume"),
        ({"labels": {}}, "labels are missing: title, description, version, revision"),
    ],
)
def test_a_careless_configuration(change: dict[str, Any], problem: str) -> None:
    """Each thing that is wrong is named, and nothing else."""
    (found,) = config_problems(GOOD._replace(**change))
    assert found.startswith(problem)


def test_a_root_of_a_server() -> None:
    """Nothing is wrong with it."""
    assert [] == root_problems(FILES, ["/var/lib/kgw"])


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        (FileFacts("/bin/sh", stat.S_IFLNK | 0o777, 0), "a server has no use for"),
        (FileFacts("/opt/kgw/bin/pip", stat.S_IFREG | 0o755, 0), "a server has no use for"),
        (FileFacts("/usr/bin/su", stat.S_IFREG | 0o4755, 0), "gives its user another's rights"),
        (FileFacts("/etc/x", stat.S_IFREG | 0o666, 0), "can be written by everybody"),
        (FileFacts("/etc/y", stat.S_IFREG | 0o644, 10001), "is owned by 10001"),
    ],
)
def test_a_careless_root(file: FileFacts, problem: str) -> None:
    """Each file that should not be as it is, is named."""
    (found,) = root_problems([*FILES, file], ["/var/lib/kgw"])
    assert found.startswith(file.path)
    assert problem in found


def test_a_root_that_lacks_something() -> None:
    """A volume's folder that root owns, and sources that are not compiled."""
    files = [one for one in FILES if "pyc" not in one.path and one.user_id == 0]
    volume, compiled = root_problems(files, ["/var/lib/kgw"])
    assert volume.startswith("/var/lib/kgw is not owned by 10001")
    assert compiled.startswith("nothing is compiled")


def test_reading_a_root(tmp_path: Path) -> None:
    """Files, folders and links, by the path that they have inside."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("nowhere")
    found = {one.path: stat.S_IFMT(one.mode) for one in read_facts(tmp_path)}
    assert {"/bin": stat.S_IFDIR, "/bin/sh": stat.S_IFLNK} == found


STATUS = """Name:\tkgw
Uid:\t10001\t10001\t10001\t10001
Gid:\t10001\t10001\t10001\t10001
Groups:\t
NSpid:\t4711\t1
CapInh:\t0000000000000000
CapPrm:\t0000000000000000
CapEff:\t0000000000000000
CapBnd:\t0000000000000000
CapAmb:\t0000000000000000
NoNewPrivs:\t1
Seccomp:\t2
"""
MOUNTS = """1 2 0:1 / / ro,relatime - ext4 /dev/vda rw
3 4 0:2 / /proc rw - proc proc rw
"""


def test_reading_a_process() -> None:
    """The kernel's own words for it."""
    assert PROCESS == parse_process(STATUS, MOUNTS, 256 << 20)
    root = parse_process(
        STATUS.replace("CapBnd:\t0", "CapBnd:\t8"), MOUNTS.replace("ro,", "rw,"), 1
    )
    assert (0x8000000000000000, False) == (root.capabilities, root.is_root_read_only)


def test_a_hardened_process() -> None:
    """Nothing is wrong with it."""
    assert [] == process_problems(PROCESS, 256 << 20)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"user_ids": frozenset({0, 10001})}, "it runs with the ids [0, 10001]"),
        ({"capabilities": 0x20}, "it has the capabilities 0x20"),
        ({"no_new_privileges": False}, "a program that it starts may get more rights"),
        ({"seccomp": 0}, "no filter of system calls is on"),
        ({"pid_inside": 7}, "it is process 7 in there, not the first"),
        ({"is_root_read_only": False}, "its root file system can be written"),
        ({"memory_limit_bytes": 1 << 40}, "its memory is limited to 1099511627776"),
    ],
)
def test_a_careless_process(change: dict[str, Any], problem: str) -> None:
    """Each right that is too much is named, and nothing else."""
    assert [problem] == process_problems(PROCESS._replace(**change), 256 << 20)


@pytest.mark.parametrize(
    ("facts", "is_ready", "expected"),
    [
        (HealthFacts(True, True, True), True, []),
        (HealthFacts(True, False, False), False, []),
        (HealthFacts(None, False, False), False, ["full: it is not said to live"]),
        (HealthFacts(True, True, False), False, ["full: /health/ready says ready"]),
        (
            HealthFacts(True, False, True),
            False,
            ["full: the image's health check says healthy"],
        ),
        (
            HealthFacts(True, False, False),
            True,
            [
                "full: /health/ready says not ready",
                "full: the image's health check says unhealthy",
            ],
        ),
    ],
)
def test_health(facts: HealthFacts, is_ready: bool, expected: list[str]) -> None:
    """What is said of a state, and what it is."""
    assert expected == health_problems("full", facts, is_ready=is_ready)
