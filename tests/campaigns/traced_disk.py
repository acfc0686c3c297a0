"""What a disk holds while a recorded process writes, and what a power loss would leave of it.

The rules are those of `tests.simulated_fs`, taken over with its parts; here they are driven by the
system calls of a real process (`traces`):

- A write, a cut or a change of a name takes effect when its call begins, and is in doubt from then
  on: a power loss leaves any of its sectors of 512 bytes, or the change of a name, or not.
- A sync of a file covers what had returned before the sync began, and that is on the disk for sure
  once the sync has returned with success: bytes and length, by `fdatasync` as well. A sync in the
  kernel's queue begins with `io_submit` and ends with the `io_getevents` that brings its success.
- A sync of a directory does the same for names in it; a rename between two directories is one
  change, made durable by a sync of either. That is what ext4 and XFS do, with one transaction of
  their journal; it is kinder than POSIX, which promises nothing of the kind.
- `sync_file_range` and closing a file make nothing durable. Nor does a sync of a file its name.

Real file systems leave less to chance: ext4 and XFS keep the order of names.
"""

from __future__ import annotations

import os
import re
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.embedded.backup.control import SOCKET_NAME
from tests.campaigns.traces import TraceError
from tests.simulated_disk import (
    CrashMode,
    Directory,
    Inode,
    Length,
    NameChange,
    Node,
    PowerLoss,
    current_entries,
    durable_entries,
    resize,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from random import Random

    from tests.campaigns.traces import Call

WRITE: Final = "write"
CUT: Final = "cut"
CREATE: Final = "create"
MAKE_DIRECTORY: Final = "make directory"
RENAME: Final = "rename"
REMOVE: Final = "remove"
SYNC: Final = "sync"

_PWRITES: Final = frozenset({"pwrite64", "pwritev", "pwritev2"})
_WRITES: Final = frozenset({"write", "writev"})
_HARMLESS: Final = frozenset({"sync_file_range", "sendto", "sendmsg", "io_getevents", "sync"})
_AIO_FILE = re.compile(
    rb"\{aio_data=(0x[0-9a-f]+|\d+), aio_lio_opcode=(\w+), aio_fildes=\d+<([^>]*)>(\(deleted\))?"
)
_AIO_EVENT = re.compile(rb"\{data=(0x[0-9a-f]+|\d+), obj=0x[0-9a-f]+, res=(-?\w+), ")
_AT = re.compile(rb"(?:AT_FDCWD|\d+)<([^>]*)>, \"")
_CHUNK_BYTES: Final = 64 << 10


class Operation(NamedTuple):
    """What one call changes on the disk, or makes durable."""

    kind: str
    path: str
    entered: int
    left: int | None
    """Places in the trace; None when it never returned."""
    entered_s: float
    left_s: float
    position: int = 0
    """Where a write begins; the new length of a file that is cut."""
    data: bytes = b""
    target: str = ""
    failed: bool = False
    """Whether a sync returned an error; other calls that failed are left out."""


class Event(NamedTuple):
    """An operation begins or returns."""

    at: int
    operation: Operation
    is_return: bool

    @property
    def time_s(self) -> float:
        """When, by the wall clock."""
        return self.operation.left_s if self.is_return else self.operation.entered_s


def disk_events(calls: Sequence[Call], root: str) -> list[Event]:
    """Return all that calls do to what lies below a directory, in order.

    Raises TraceError for a call whose effect on such a file is not known.
    """
    events: list[Event] = []
    for operation in _Reader(root).read(calls):
        events.append(Event(operation.entered, operation, is_return=False))
        if operation.left is not None:
            events.append(Event(operation.left, operation, is_return=True))
    return sorted(events, key=lambda event: event.at)


class _Reader:
    """Reads operations out of calls."""

    def __init__(self, root: str) -> None:
        self._root = f"{root.rstrip('/')}/"
        self._cursors: dict[tuple[int, str], int] = {}
        """Where `write` goes on, by descriptor."""
        self._queued: dict[tuple[bytes, int], Operation] = {}
        """Syncs in the kernel's queues, by queue and number."""

    def read(self, calls: Sequence[Call]) -> list[Operation]:
        """Return the operations of all calls."""
        found: list[Operation] = []
        for call in calls:
            if call.name == "io_getevents":
                found += self._end_queued(call)
            elif call.result is not None and call.result < 0 and "sync" not in call.name:
                continue
            else:
                found += self._operations(call)
        # They began, and nobody has heard of their end.
        return found + list(self._queued.values())

    def _operations(self, call: Call) -> Iterator[Operation]:
        name = call.name
        if name in _PWRITES or name in _WRITES:
            yield from self._write(call)
        elif name in {"open", "openat", "creat"}:
            yield from self._open(call)
        elif name in {"fsync", "fdatasync", "ftruncate"}:
            place = call.descriptor()
            if place is not None and self._is_ours(place[1]):
                kind = CUT if name == "ftruncate" else SYNC
                size = call.numbers_at_end()[0] if kind == CUT else 0
                yield self._operation(kind, place[1], call, position=size)
        elif name in {"rename", "renameat", "renameat2"}:
            source, target = self._paths(call)
            if self._is_ours(source) or self._is_ours(target):
                yield self._operation(RENAME, source, call, target=target)
        elif name in {"mkdir", "mkdirat", "unlink", "unlinkat", "rmdir"}:
            (path,) = self._paths(call)
            if self._is_ours(path):
                kind = MAKE_DIRECTORY if name.startswith("mkdir") else REMOVE
                yield self._operation(kind, path, call)
        elif name == "io_submit":
            self._begin_queued(call)
        elif name not in _HARMLESS and self._root.encode() in call.arguments:
            shared = b"MAP_SHARED" in call.arguments and b"PROT_WRITE" in call.arguments
            if name != "mmap" or shared:
                raise TraceError(f"what this does to the disk is not known: {call}")

    def _write(self, call: Call) -> Iterator[Operation]:
        if call.socket() is not None or b"<" not in call.arguments[:12]:
            return
        place = call.descriptor()
        if place is None or not self._is_ours(place[1]):
            return
        data = b"".join(call.texts())
        if call.result is not None:
            data = data[: call.result]
        if call.name in _WRITES:
            position = self._cursors.get(place, 0)
            self._cursors[place] = position + len(data)
        else:
            # Behind the count of buffers or bytes; pwritev2 has flags after it.
            position = call.numbers_at_end()[1]
        if data:
            yield self._operation(WRITE, place[1], call, position=position, data=data)

    def _open(self, call: Call) -> Iterator[Operation]:
        (path,) = self._paths(call)
        if not self._is_ours(path):
            return
        # A process that is killed in the call never hears of the file that the kernel has created.
        if call.result is not None:
            self._cursors[call.result, path] = 0
        if b"O_TMPFILE" in call.arguments or b"O_APPEND" in call.arguments:
            raise TraceError(f"what this does to the disk is not known: {call}")
        if call.name == "creat" or b"O_CREAT" in call.arguments:
            # Which may be there already.
            yield self._operation(CREATE, path, call)
        if call.name == "creat" or b"O_TRUNC" in call.arguments:
            yield self._operation(CUT, path, call)

    def _begin_queued(self, call: Call) -> None:
        queue, taken = call.arguments.split(b",", 1)[0], call.result or 0
        for number, opcode, path, deleted in _AIO_FILE.findall(call.arguments)[:taken]:
            if opcode not in {b"IOCB_CMD_FSYNC", b"IOCB_CMD_FDSYNC"}:
                raise TraceError(f"what this does to the disk is not known: {call}")
            place = (queue, int(number, 0))
            if place in self._queued:
                raise TraceError(f"number {number!r} is in the queue twice: {call}")
            if not deleted and self._is_ours(path.decode()):
                operation = self._operation(SYNC, path.decode(), call)._replace(left=None)
                if operation in self._queued.values():
                    raise TraceError(f"one call syncs a file twice: {call}")
                self._queued[place] = operation

    def _end_queued(self, call: Call) -> Iterator[Operation]:
        queue = call.arguments.split(b",", 1)[0]
        for number, result in _AIO_EVENT.findall(call.arguments):
            operation = self._queued.pop((queue, int(number, 0)), None)
            if operation is not None:
                yield operation._replace(
                    left=call.left, left_s=call.left_s, failed=result not in {b"0", b"0x0"}
                )

    def _operation(
        self, kind: str, path: str, call: Call, *, position: int = 0, data: bytes = b"",
        target: str = "",
    ) -> Operation:  # fmt: skip
        times = (call.entered, call.left, call.entered_s, call.left_s)
        failed = call.result is not None and call.result < 0
        return Operation(kind, path, *times, position, data, target, failed)

    def _paths(self, call: Call) -> list[str]:
        """Return the paths in the arguments, made absolute."""
        texts = [os.fsdecode(text) for text in call.texts()]
        above = [os.fsdecode(text) for text in _AT.findall(call.arguments)]
        if above:
            return [os.path.join(*parts) for parts in zip(above, texts, strict=True)]  # noqa: PTH118
        return texts

    def _is_ours(self, path: str) -> bool:
        # The control socket is no file: no call that is traced makes it, and it holds no bytes.
        is_socket = path.endswith(f"/{SOCKET_NAME}")
        return (path.startswith(self._root) and not is_socket) or f"{path}/" == self._root


class _Doubt(NamedTuple):
    """What a sync under way will make durable."""

    node: Node
    sequence: int
    changes: tuple[NameChange, ...]


class TracedDisk:
    """A directory, empty at first, that events of a trace are put to in their order."""

    def __init__(self, root: str) -> None:
        self._above = root.rstrip("/")
        self._root = Directory()
        self._pending: list[NameChange] = []
        self._numbers = count(1)
        self._sequence = 0
        self._under_way: dict[int, Node | NameChange] = {}
        """Changes whose calls have not returned, by their number."""
        self._number_of: dict[Operation, int] = {}
        self._syncs: dict[Operation, _Doubt] = {}
        self._leaving: dict[str, Node] = {}
        """What calls under way take a name from: an open file may still be shown under it."""

    # --- events ----------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Go on to the moment after an event. Raises TraceError for what cannot be."""
        operation = event.operation
        if operation.kind == SYNC:
            if event.is_return:
                self._end_sync(operation)
            else:
                self._begin_sync(operation)
        elif event.is_return:
            self._under_way.pop(self._number_of.pop(operation, 0), None)
            if operation.kind in {RENAME, REMOVE}:
                self._leaving.pop(operation.path, None)
        elif operation.kind != CREATE or not self._exists(operation.path):
            self._sequence = next(self._numbers)
            self._number_of[operation] = self._sequence
            self._under_way[self._sequence] = self._change(operation)

    def _change(self, operation: Operation) -> Node | NameChange:
        match operation.kind:
            case "write" | "cut":
                inode = self._inode(operation.path)
                if inode in self._under_way.values():
                    raise TraceError(f"two calls change {operation.path} at once")
                self._write(inode, operation)
                return inode
            case "create":
                return self._change_name(None, self._parent(operation.path), Inode())
            case "make directory":
                return self._change_name(None, self._parent(operation.path), Directory())
            case "rename":
                node = self._leaving[operation.path] = self._node(operation.path)
                return self._change_name(
                    self._parent(operation.path), self._parent(operation.target), node
                )
            case _:
                node = self._leaving[operation.path] = self._node(operation.path)
                return self._change_name(self._parent(operation.path), None, node)

    def _write(self, inode: Inode, operation: Operation) -> None:
        before = len(inode.content)
        start = operation.position
        if operation.kind == CUT:
            end = start
            resize(inode.content, end)
            inode.lengths.append(Length(self._sequence, end))
            inode.touch(min(end, before), max(end, before), self._sequence)
            return
        end = start + len(operation.data)
        if end > before:
            resize(inode.content, end)
            inode.lengths.append(Length(self._sequence, end))
        inode.content[start:end] = operation.data
        inode.touch(min(start, before), end, self._sequence)

    def _change_name(
        self,
        removed: tuple[Directory, str] | None,
        added: tuple[Directory, str] | None,
        node: Node,
    ) -> NameChange:
        change = NameChange(self._sequence, removed, added, node)
        change.apply(current_entries)
        self._pending.append(change)
        return change

    def _begin_sync(self, operation: Operation) -> None:
        node = self._node(operation.path)
        if isinstance(node, Directory):
            changes = tuple(
                change
                for change in self._pending
                if change.touches(node) and change.sequence not in self._under_way
            )
            self._syncs[operation] = _Doubt(node, 0, changes)
            return
        running = [number for number, what in self._under_way.items() if what is node]
        self._syncs[operation] = _Doubt(node, min(running, default=self._sequence + 1) - 1, ())

    def _end_sync(self, operation: Operation) -> None:
        doubt = self._syncs.pop(operation)
        if isinstance(doubt.node, Inode):
            if operation.failed:
                doubt.node.fail_sync(0)
            else:
                doubt.node.sync_until(doubt.sequence)
        elif not operation.failed:
            for change in self._pending:
                if change in doubt.changes:
                    change.apply(durable_entries)
            self._pending = [one for one in self._pending if one not in doubt.changes]

    # --- what there is ---------------------------------------------------------------------------

    def power_loss(self, random: Random, mode: CrashMode, target: Path) -> None:
        """Write what a power loss at this moment leaves into a directory that is not there yet."""
        loss = PowerLoss(random, mode, self._sequence)
        views: dict[int, dict[str, Node]] = {}

        def entries_of(directory: Directory) -> dict[str, Node]:
            return views.setdefault(id(directory), dict(directory.durable))

        for change in self._pending:
            if loss.keeps(change.sequence):
                change.apply(entries_of)
        _write_out(self._root, target, entries_of, lambda one: one.after_power_loss(loss).content)

    def current_files(self) -> dict[str, bytes]:
        """Return what a process sees, by path below the directory."""
        return dict(_files(self._root, current_entries, lambda inode: inode.content))

    def durable_files(self) -> dict[str, bytes]:
        """Return what a power loss leaves at least, by path below the directory."""
        return dict(_files(self._root, durable_entries, lambda inode: inode.durable))

    def unsynced_files(self) -> set[str]:
        """Return the files of which something is in doubt, by path below the directory."""
        return {
            path
            for path, inode in _inodes(self._root, current_entries)
            if inode.dirty or inode.limbo or inode.lengths
        }

    # --- inside ----------------------------------------------------------------------------------

    def _node(self, path: str) -> Node:
        node = _below(self._root, self._parts(path))
        if node is None:
            for place, left in self._leaving.items():
                if path == place or path.startswith(f"{place}/"):
                    node = _below(left, path[len(place) :].split("/")[1:])
        if node is None:
            raise TraceError(f"a call names {path}, which is not there")
        return node

    def _exists(self, path: str) -> bool:
        directory, name = self._parent(path)
        return name in directory.entries

    def _inode(self, path: str) -> Inode:
        node = self._node(path)
        if not isinstance(node, Inode):
            raise TraceError(f"{path} is a directory")
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        above, _, name = path.rpartition("/")
        node = self._node(above)
        if not isinstance(node, Directory):
            raise TraceError(f"{above} is no directory")
        return node, name

    def _parts(self, path: str) -> list[str]:
        if path != self._above and not path.startswith(f"{self._above}/"):
            raise TraceError(f"a call names {path}, which is elsewhere")
        return [part for part in path[len(self._above) :].split("/") if part]


def _below(node: Node, names: Sequence[str]) -> Node | None:
    for name in names:
        child = node.entries.get(name) if isinstance(node, Directory) else None
        if child is None:
            return None
        node = child
    return node


def _inodes(
    directory: Directory, entries_of: Callable[[Directory], dict[str, Node]], above: str = ""
) -> Iterator[tuple[str, Inode]]:
    for name, node in entries_of(directory).items():
        if isinstance(node, Directory):
            yield from _inodes(node, entries_of, f"{above}{name}/")
        else:
            yield f"{above}{name}", node


def _files(
    directory: Directory,
    entries_of: Callable[[Directory], dict[str, Node]],
    content_of: Callable[[Inode], bytearray],
) -> Iterator[tuple[str, bytes]]:
    for path, inode in _inodes(directory, entries_of):
        yield path, bytes(content_of(inode))


def _write_out(
    directory: Directory,
    target: Path,
    entries_of: Callable[[Directory], dict[str, Node]],
    content_of: Callable[[Inode], bytearray],
) -> None:
    target.mkdir(0o700)
    for name, node in entries_of(directory).items():
        place = target / name
        if isinstance(node, Directory):
            _write_out(node, place, entries_of, content_of)
            continue
        content = memoryview(content_of(node))
        with open(place, "wb", opener=_private) as file:
            for start in range(0, len(content), _CHUNK_BYTES):
                chunk = content[start : start + _CHUNK_BYTES]
                # Holes for zeros: a journal is mostly that.
                if any(chunk[:1]) or bytes(chunk).strip(b"\0"):
                    file.seek(start)
                    file.write(chunk)
            file.truncate(len(content))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def files_on_disk(root: Path) -> dict[str, bytes]:
    """Return the files below a real directory, as `TracedDisk.current_files`."""
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def difference(expected: dict[str, bytes], found: dict[str, bytes]) -> list[str]:
    """Return the paths of files that differ, or that only one side has."""
    paths = sorted(expected.keys() | found.keys())
    return [path for path in paths if expected.get(path) != found.get(path)]
