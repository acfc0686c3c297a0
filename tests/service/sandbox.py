"""Become a program under the system call filter that a unit of systemd asks for.

    python -m tests.service.sandbox UNIT PROGRAM [ARGUMENT...]

systemd's own sets (`systemd-analyze syscall-filter`), made into a filter by libseccomp, as systemd
does it: SystemCallFilter=, RestrictAddressFamilies=, MemoryDenyWriteExecute= and
RestrictNamespaces=. What the unit forbids ends the process instead of being refused, so that a
program which goes on has needed nothing of it. Calls that systemd does not know, and that kgw does
without, are refused.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess
import sys
from mmap import PROT_EXEC, PROT_WRITE
from pathlib import Path
from typing import Final

_PR_SET_NO_NEW_PRIVS: Final = 38
_KILL_PROCESS: Final = 0x80000000
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_MASKED_EQUAL: Final = 7
_NAMESPACES: Final = 0x7E020080
"""Every CLONE_NEW flag."""
_CACHESTAT: Final = 451


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_uint),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


def settings(unit: Path, name: str) -> list[str]:
    """Return the values of a setting in a unit, in order."""
    lines = unit.read_text(encoding="utf-8").splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]


def allowed_calls(unit: Path) -> set[str]:
    """Return the names of the system calls that SystemCallFilter= leaves."""
    calls: set[str] = set()
    for value in settings(unit, "SystemCallFilter"):
        is_denied = value.startswith("~")
        for item in value.removeprefix("~").split():
            named = _members(item) if item.startswith("@") else {item}
            calls = calls - named if is_denied else calls | named
    # The set @default is allowed whatever is taken away.
    return calls | _members("@default")


def _members(name: str) -> set[str]:
    command = ["systemd-analyze", "--no-pager", "syscall-filter", name]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    members: set[str] = set()
    for line in said.splitlines()[1:]:
        item = line.strip()
        if item.startswith("@"):
            members |= _members(item)
        elif item and not item.startswith("#"):
            members.add(item)
    return members


class _Filter:
    """libseccomp's, as far as it is needed."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(_KILL_PROCESS))

    def allow(self, call: str, *comparisons: tuple[int, int, int]) -> None:
        """Allow a call where every (argument, mask, value) holds."""
        number = self._library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:
            self._add(_ALLOW, number, comparisons)

    def refuse(self, call: str | int, code: int) -> None:
        """Answer a call with an error."""
        number = call
        if isinstance(call, str):
            number = self._library.seccomp_syscall_resolve_name(call.encode())
        self._add(_ERRNO | code, int(number), ())

    def load(self) -> None:
        """Hold this process to it, and whatever it becomes or starts."""
        ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        self._check(self._library.seccomp_load(self._context))

    def _add(self, action: int, number: int, wanted: tuple[tuple[int, int, int], ...]) -> None:
        array = (_Comparison * len(wanted))(
            *(_Comparison(argument, _MASKED_EQUAL, mask, value) for argument, mask, value in wanted)
        )
        self._check(
            self._library.seccomp_rule_add_array(
                self._context, ctypes.c_uint32(action), number, len(wanted), array
            )
        )

    def _check(self, result: int) -> None:
        if result < 0:
            raise OSError(-result, os.strerror(-result))


def enter(unit: Path) -> None:
    """Hold this process to what the unit allows."""
    calls = allowed_calls(unit)
    rules = _Filter()
    # Restricted by their arguments, answered as systemd answers them, or not allowed at all.
    restricted = {"mmap", "mprotect", "pkey_mprotect", "shmat", "clone", "clone3", "unshare"}
    for call in calls - restricted - {"setns", "socket"}:
        rules.allow(call)
    both = PROT_WRITE | PROT_EXEC
    for protection in (0, PROT_WRITE, PROT_EXEC):
        rules.allow("mmap", (2, both, protection))
    rules.allow("mprotect", (2, PROT_EXEC, 0))
    rules.allow("clone", (0, _NAMESPACES, 0))
    rules.refuse("clone3", errno.ENOSYS)
    for family in " ".join(settings(unit, "RestrictAddressFamilies")).split():
        rules.allow("socket", (0, 0xFFFFFFFF, int(getattr(socket, family))))
    if "cachestat" not in calls:
        # kgw asks what of a file is in memory, and does without an answer.
        rules.refuse(_CACHESTAT, errno.EPERM)
    if os.geteuid() == 0 and "fchown" not in calls:
        # SQLite gives a file that root creates to the database's owner, if it can; no other user.
        rules.refuse("fchown", errno.EPERM)
    rules.load()


if __name__ == "__main__":
    enter(Path(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606
