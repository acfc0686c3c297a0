"""What an OCI runtime is told to run an image as a hardened `docker run` would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.image.rules import ImageConfig

MEMORY_BYTES = 256 << 20
PIDS = 256
# What Docker hides of the kernel, and what it lets nobody write.
MASKED = (
    *("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug"),
    *("/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/firmware"),
)
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


class Limits(NamedTuple):
    """What the container may use."""

    memory_bytes: int = MEMORY_BYTES
    descriptors: int = 1_024
    """How many files a process may open; the hard limit is the same."""
    device: tuple[int, int] | None = None
    """One that is read and written at no more than these rates; 0: as it can."""
    read_bytes_per_s: int = 0
    written_bytes_per_s: int = 0


class Hardening(NamedTuple):
    """What a control leaves out."""

    user: tuple[int, int] | None = None
    """None: the image's own."""
    read_only_root: bool = True
    no_new_privileges: bool = True
    capabilities: tuple[str, ...] = ()


def runtime_spec(
    config: ImageConfig,
    root: str,
    volume: str,
    cgroup: str,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    hardening: Hardening | None = None,
    seccomp: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the `config.json` of a bundle.

    `arguments` take the place of the image's command, as behind the image's name on a command line.
    The network is the caller's: who makes the bundle makes a network namespace, too.
    """
    limits = limits or Limits()
    hardening = hardening or Hardening()
    ids = hardening.user or tuple(map(int, config.user.split(":")))
    bind = {"type": "bind", "source": volume, "options": ["rbind", "rw", "nosuid", "nodev"]}
    mounts = [
        _mount("/proc", "proc"),
        _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
        _mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666"),
        _mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777", "size=65536k"),
        _mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
        # As Docker shows it, so that a program finds its own limit.
        _mount("/sys/fs/cgroup", "cgroup", "nosuid", "noexec", "nodev", "relatime", "ro"),
        {"destination": config.volumes[0], **bind},
    ]
    resources: dict[str, Any] = {
        "memory": {"limit": limits.memory_bytes},
        "pids": {"limit": PIDS},
        "devices": [{"allow": False, "access": "rwm"}],
    }
    if limits.device is not None:
        major, minor = limits.device
        rates = {"Read": limits.read_bytes_per_s, "Write": limits.written_bytes_per_s}
        resources["blockIO"] = {
            f"throttle{name}BpsDevice": [{"major": major, "minor": minor, "rate": rate}]
            for name, rate in rates.items()
            if rate
        }
    capabilities = list(hardening.capabilities)
    names = ("bounding", "effective", "inheritable", "permitted", "ambient")
    linux = {
        "cgroupsPath": cgroup,
        "namespaces": [{"type": name} for name in ("pid", "ipc", "uts", "mount", "cgroup")],
        "resources": resources,
        "maskedPaths": list(MASKED),
        "readonlyPaths": list(READ_ONLY),
    }
    if seccomp is not None:
        linux["seccomp"] = dict(seccomp)
    return {
        "ociVersion": "1.0.2",
        "hostname": "kgw",
        "root": {"path": root, "readonly": hardening.read_only_root},
        "mounts": mounts,
        "process": {
            "terminal": False,
            "user": {"uid": ids[0], "gid": ids[1], "additionalGids": []},
            "args": [*config.entrypoint, *(arguments or config.command)],
            "env": [f"{k}={v}" for k, v in {**config.environment, **(environment or {})}.items()],
            "cwd": config.working_directory,
            "capabilities": dict.fromkeys(names, capabilities),
            "rlimits": [
                {"type": "RLIMIT_NOFILE", "hard": limits.descriptors, "soft": limits.descriptors}
            ],
            "noNewPrivileges": hardening.no_new_privileges,
        },
        "linux": linux,
    }


def _mount(place: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": place, "type": kind, "source": kind, "options": list(options)}


def seccomp_of(profile: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """Return Docker's profile of system calls as a runtime takes it, for no capability at all.

    `architecture` is Go's name of it, as in the profile: amd64.
    """
    calls = []
    for rule in profile["syscalls"]:
        wanted = rule.get("includes") or {}
        if wanted.get("caps") or wanted.get("minKernel"):
            continue
        if "arches" in wanted and architecture not in wanted["arches"]:
            continue
        if architecture in (rule.get("excludes") or {}).get("arches", ()):
            continue
        call = {"names": rule["names"], "action": rule["action"]}
        if rule.get("args"):
            call["args"] = rule["args"]
        if rule.get("errnoRet"):
            call["errnoRet"] = rule["errnoRet"]
        calls.append(call)
    found: dict[str, Any] = {"defaultAction": profile["defaultAction"], "syscalls": calls}
    if "defaultErrnoRet" in profile:
        found["defaultErrnoRet"] = profile["defaultErrnoRet"]
    return found
