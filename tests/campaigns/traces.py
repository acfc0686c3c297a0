"""System calls of a real process, as strace writes them down.

strace sees a call twice: before the kernel begins it and after the kernel has ended it. It writes
one line where nothing of another thread came in between, otherwise two ("unfinished", "resumed").
`Call.entered` and `Call.left` are places in that order: whatever has a smaller place happened
before. So a sync has covered a write for sure when the write's `left` is below the sync's
`entered`, and an answer was sent after a sync when the sync's `left` is below the `entered` of the
call that sends.
"""

from __future__ import annotations

import codecs
import re
import shutil
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from tests import patience

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

CHANGING: Final = (
    *("open", "openat", "creat", "write", "pwrite64", "writev", "pwritev", "pwritev2"),
    *("ftruncate", "truncate", "fallocate", "copy_file_range", "sendfile"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat"),
    *("link", "linkat", "symlink", "symlinkat", "mmap"),
)
SYNCING: Final = (
    *("fsync", "fdatasync", "io_submit", "io_getevents", "sync", "syncfs", "sync_file_range"),
    "msync",
)
SENDING: Final = ("sendto", "sendmsg")
LONGEST_TEXT_BYTES: Final = 64 << 20
END_S: Final = 20.0

_LINE = re.compile(rb"(\d+) +(\d+\.\d+) (.*)", re.DOTALL)
_RESUMED = re.compile(rb"<\.\.\. (\w+) resumed>(.*)", re.DOTALL)
_UNFINISHED: Final = b" <unfinished ...>"
_CALL = re.compile(
    rb"(\w+)\((.*)\)\s+= (-?\d+|0x[0-9a-f]+|\?)([^\n]*?)(?: <(\d+\.\d+)>)?", re.DOTALL
)
_BEGUN = re.compile(rb"(\w+)\((.*)", re.DOTALL)
_PATH_OF_DESCRIPTOR = re.compile(rb"(\d+)<([^>]*)>(\(deleted\))?")
_SOCKET = re.compile(rb"\d+<TCP(?:v6)?:\[.*?:(\d+)->.*?:(\d+)\]>")


class TraceError(Exception):
    """The trace holds something that cannot be understood, so that nothing may be built on it."""


class Call(NamedTuple):
    """One system call of one thread."""

    name: str
    arguments: bytes
    """As strace prints them."""
    result: int | None
    """None when the thread ended in it."""
    entered: int
    left: int | None
    entered_s: float
    left_s: float
    """Wall-clock times; `left_s` is `entered_s` when the call never returned."""

    def texts(self) -> list[bytes]:
        """Return every quoted argument, decoded. Raises TraceError for one that was cut."""
        return [_unescape(text) for text in _quoted(self.arguments)]

    def numbers_at_end(self) -> list[int]:
        """Return the plain numbers behind the last quoted, bracketed or named argument."""
        behind = max(map(self.arguments.rfind, (b'"', b"]", b">")))
        tail = self.arguments[behind + 1 :]
        return [int(part, 0) for part in tail.split(b",") if part.strip()]

    def descriptor(self) -> tuple[int, str] | None:
        """Return number and path of the first argument; None for what has no path any more."""
        found = _PATH_OF_DESCRIPTOR.match(self.arguments)
        if found is None:
            raise TraceError(f"no descriptor in {self}")
        if found[3] is not None:
            return None
        return int(found[1]), _unescape(found[2]).decode(errors="surrogateescape")

    def socket(self) -> tuple[int, int] | None:
        """Return our port and the peer's when the first argument is a TCP connection."""
        found = _SOCKET.match(self.arguments)
        return None if found is None else (int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.name}({self.arguments[:200].decode(errors='replace')}) = {self.result}"


def have_strace() -> bool:
    """Whether real processes can be recorded here."""
    return shutil.which("strace") is not None


def traced(command: Sequence[str], trace: Path) -> list[str]:
    """Return what runs a command and writes its calls down; the process is the command's own."""
    # -D: strace is a descendant, so that signals to the process reach the command itself.
    # seccomp-bpf: whatever is not asked for costs nothing.
    options = ["-D", "-f", "-q", "-yy", "-ttt", "-T", "--seccomp-bpf"]
    options += ["-s", str(LONGEST_TEXT_BYTES), "-o", str(trace)]
    wanted = ",".join((*CHANGING, *SYNCING, *SENDING))
    return ["strace", *options, "-e", f"trace={wanted}", "-e", "signal=none", *command]


def wait_for_end(trace: Path, pid: int) -> None:
    """Return once strace has written that the process has ended. Raises TraceError."""
    ending = re.compile(rb"^%d +[\d.]+ \+\+\+ (?:exited|killed).*\n\Z" % pid, re.MULTILINE)
    limit = patience.Limit(END_S)
    while not limit.is_over:
        with trace.open("rb") as file:
            file.seek(max(0, trace.stat().st_size - 200))
            if ending.search(file.read()):
                return
        time.sleep(0.01)
    raise TraceError(f"strace has not ended within {END_S:g} s")


def read_calls(trace: Path) -> list[Call]:
    """Return every call of a trace, in the order in which they began. Raises TraceError."""
    return sorted(_calls(trace), key=lambda call: call.entered)


def _calls(trace: Path) -> Iterator[Call]:
    pending: dict[bytes, tuple[int, float, bytes]] = {}
    with trace.open("rb") as lines:
        for number, line in enumerate(lines):
            found = _LINE.fullmatch(line.rstrip(b"\n"))
            if found is None:
                raise TraceError(f"line {number + 1}: {line[:200]!r}")
            thread, time_s, rest = found[1], float(found[2]), found[3]
            if rest.startswith((b"+++", b"---")):
                continue
            if rest.endswith(_UNFINISHED):
                pending[thread] = (2 * number, time_s, rest[: -len(_UNFINISHED)])
                continue
            resumed = _RESUMED.fullmatch(rest)
            if resumed is None:
                yield _whole(rest, 2 * number, 2 * number + 1, time_s, None)
            elif thread in pending:
                entered, entered_s, start = pending.pop(thread)
                yield _whole(start + resumed[2], entered, 2 * number + 1, entered_s, time_s)
            else:
                raise TraceError(f"line {number + 1} resumes nothing: {line[:200]!r}")
    for entered, entered_s, start in pending.values():
        begun = _BEGUN.fullmatch(start)
        if begun is None:
            raise TraceError(f"line {entered // 2 + 1}: {start[:200]!r}")
        yield Call(begun[1].decode(), begun[2], None, entered, None, entered_s, entered_s)


def _whole(text: bytes, entered: int, left: int, entered_s: float, resumed_s: float | None) -> Call:
    found = _CALL.fullmatch(text)
    if found is None:
        raise TraceError(f"line {entered // 2 + 1}: {text[:200]!r}")
    left_s = entered_s + float(found[5] or 0) if resumed_s is None else resumed_s
    if found[3] == b"?":
        return Call(found[1].decode(), found[2], None, entered, None, entered_s, entered_s)
    result = int(found[3], 0)
    return Call(found[1].decode(), found[2], result, entered, left, entered_s, left_s)


def _quoted(arguments: bytes) -> Iterator[bytes]:
    """Return what stands between quotes. A pattern takes 150 ms for a megabyte of zeros."""
    start = arguments.find(b'"')
    while start >= 0:
        end = arguments.index(b'"', start + 1)
        while _is_escaped(arguments, end):
            end = arguments.index(b'"', end + 1)
        if arguments.startswith(b"...", end + 1):
            raise TraceError("strace has cut a text")
        yield arguments[start + 1 : end]
        start = arguments.find(b'"', end + 1)


def _is_escaped(text: bytes, position: int) -> bool:
    """Whether an odd number of backslashes stands before a position."""
    first = position
    while text[first - 1] == ord("\\"):
        first -= 1
    return (position - first) % 2 == 1


def _unescape(text: bytes) -> bytes:
    """Undo C's escapes, which Python's byte strings share."""
    return codecs.escape_decode(text)[0] if b"\\" in text else text


def sent_frames(calls: Sequence[Call]) -> dict[tuple[int, int], Call]:
    """Return what sent the last byte of each answer, by the client's port and correlation id.

    An answer is a frame: a length of four bytes, then the correlation id. It counts as sent as soon
    as that call begins, since nothing says when the client gets it. Raises TraceError.
    """
    streams: dict[int, bytearray] = {}
    frames: dict[tuple[int, int], Call] = {}
    for call in calls:
        if call.name not in {"write", "writev", "sendto", "sendmsg"}:
            continue
        ports = call.socket()
        if ports is None or (call.result is not None and call.result <= 0):
            continue
        data = b"".join(call.texts())
        stream = streams.setdefault(ports[1], bytearray())
        stream += data if call.result is None else data[: call.result]
        while len(stream) >= 8:
            end = 4 + int.from_bytes(stream[:4], "big")
            if end > len(stream):
                break
            place = (ports[1], int.from_bytes(stream[4:8], "big", signed=True))
            if place in frames:
                raise TraceError(f"two answers at {place}: {call}")
            frames[place] = call
            del stream[:end]
    return frames
