"""A file system in memory that crashes, fails and fills up on demand, the same way for each seed.

`SimulatedFs` promises what a disk promises and nothing more. Bytes survive a power loss once an
`fdatasync` has covered them, names once their directory was synced. Of everything else, each
512-byte sector, each change of a file's length and each change of a name survives or not, by
chance. After a failed `fdatasync` the pages can be read and count as clean, and they are on disk or
not: a second sync proves nothing about them (ext4, XFS and Btrfs do the same). The next sync of
each open file raises that error, once. A file that is opened later raises it only if no open file
has done so yet (errseq_t of Linux, since 4.13). If none has when the last open file is closed, the
error is lost, since the kernel may forget the file.

Bytes that were written or read are in the page cache, and a peek finds them there. After a power
loss and after `drop_page_cache` the page cache is empty but for unsynced bytes; a read past the
page cache puts nothing into it.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from copy import deepcopy
from enum import Enum
from threading import Event, RLock
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from kgw.backend.embedded.files.fs import DIRECT_BLOCK_BYTES, File, FileSystem
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
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from kgw.types import Buffer


class FaultKind(Enum):
    """What a call does instead of its work."""

    EIO = "EIO"
    ENOSPC = "ENOSPC"
    SHORT = "short"


_READS: Final = frozenset({"read", "read_into", "peek", "direct"})
_NAMES: Final = frozenset({"rename", "unlink", "mkdir", "rmdir", "listdir", "sync_directory"})
_APPLICABLE: Final = {
    FaultKind.EIO: _READS
    | _NAMES
    | {"open", "write", "fdatasync", "truncate", "extend", "free_bytes"},
    # Delayed allocation lets a full disk show as late as in the sync.
    FaultKind.ENOSPC: frozenset(("write", "fdatasync", "extend", "rename", "mkdir", "create")),
    FaultKind.SHORT: _READS | {"write"},
}

_CRASH_MODES: Final = (
    CrashMode.NOTHING,
    CrashMode.EVERYTHING,
    CrashMode.PREFIX,
    CrashMode.RANDOM,
    CrashMode.RANDOM,
)


class Fault(NamedTuple):
    """The n-th call (from 1) that can fail this way does, and with `persistent` every later one."""

    kind: FaultKind
    nth: int
    persistent: bool = False
    spared: frozenset[str] = frozenset()
    """Calls that it leaves alone."""
    suffix: str = ""
    """How the paths end that it is about."""


class SimulatedFile(File):
    """A handle on a simulated file: what Linux calls an open file description."""

    __slots__ = ("_errors_told", "_fs", "_inode", "_is_open")

    def __init__(self, fs: SimulatedFs, path: str, inode: Inode) -> None:
        super().__init__(path)
        self._fs = fs
        self._inode = inode
        self._is_open = True
        self._errors_told = inode.error_count - (0 if inode.is_error_told else 1)
        inode.open_count += 1

    def read_once(self, size: int, position: int) -> bytes:
        return self._read("read", size, position)

    def read_into_once(self, buffer: memoryview, position: int) -> int:
        data = self._read("read_into", len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def _read(self, call: str, size: int, position: int) -> bytes:
        self._fs.hang(self.path)
        with self._fs.lock:
            self._check_open()
            if self._fs.strike(call, self.path) is FaultKind.SHORT:
                size = max(1, size // 2)
            self._inode.warm(position, position + size)
            return bytes(self._inode.content[position : position + size])

    def peek_into(self, buffer: memoryview, position: int) -> int:
        with self._fs.lock:
            try:
                self._check_open()
                is_short = self._fs.strike("peek", self.path) is FaultKind.SHORT
            except OSError:
                return 0
            size = self._inode.warm_bytes(position, len(buffer))
            if is_short:
                size //= 2
            data = self._inode.content[position : position + size]
            buffer[: len(data)] = data
            return len(data)

    def uncached_bytes(self, position: int, size_bytes: int) -> int:
        with self._fs.lock:
            return self._inode.cold_bytes(position, size_bytes)

    def pread_direct(self, buffer: memoryview, position: int) -> int:
        if position % DIRECT_BLOCK_BYTES or len(buffer) % DIRECT_BLOCK_BYTES:
            raise OSError(errno.EINVAL, "not aligned", self.path)
        done = 0
        self._fs.hang(self.path)
        with self._fs.lock, suppress(OSError):
            self._fs.direct_reads += 1
            # As with a real file, what is wrong shows in the plain read.
            is_short = self._fs.strike("direct", self.path) is FaultKind.SHORT
            self._check_open()
            data = self._inode.content[position : position + len(buffer)]
            done = len(data) // 2 if is_short else len(data)
            buffer[:done] = data[:done]
        return done + self.pread_into(buffer[done:], position + done)

    def write_once(self, buffers: Sequence[Buffer], position: int) -> int:
        with self._fs.lock:
            self._check_open()
            data = b"".join(buffers)
            try:
                if self._fs.strike("write", self.path) is FaultKind.SHORT:
                    data = data[: max(1, len(data) // 2)]
            except OSError as error:
                if error.errno == errno.EIO:
                    # Some of it may have arrived before the call failed.
                    self._fs.write(self, self._inode, data[: len(data) // 2], position)
                raise
            return self._fs.write(self, self._inode, data, position)

    def fdatasync(self) -> None:
        with self._fs.lock:
            self._check_open()
            inode = self._inode
            try:
                self._fs.strike("fdatasync", self.path)
            except OSError as error:
                inode.fail_sync(error.errno or errno.EIO)
            else:
                inode.sync()
            # Of a write-back that has failed each open file is told once.
            if self._errors_told != inode.error_count:
                self._errors_told = inode.error_count
                inode.is_error_told = True
                raise OSError(inode.error_number, "fdatasync failed", self.path)
            self._fs.finish("fdatasync", self.path)

    def truncate(self, size: int) -> None:
        with self._fs.lock:
            self._check_open()
            grows = size > len(self._inode.content)
            self._fs.strike("extend" if grows else "truncate", self.path)
            self._fs.truncate(self, self._inode, size)

    def size(self) -> int:
        self._check_open()
        return len(self._inode.content)

    def close(self) -> None:
        with self._fs.lock:
            if self._is_open:
                self._is_open = False
                self._inode.open_count -= 1
                if not self._inode.open_count:
                    self._inode.is_error_told = True

    def _check_open(self) -> None:
        if not self._is_open:
            raise OSError(errno.EBADF, "the file is closed", self.path)


class SimulatedFs(FileSystem):
    """A whole file system in memory; see the module. Nothing in it is real but its errors."""

    __slots__ = (
        "_pending",
        "_root",
        "_sequence",
        "_used_bytes",
        "capacity_bytes",
        "direct_reads",
        "fault",
        "hanging",
        "lock",
        "on_operation",
        "power_lost",
        "strikes",
        "struck",
    )

    on_made: ClassVar[Callable[[SimulatedFs], None] | None] = None
    """Called with each new one: a fixture may check them all when its test is over."""

    def __init__(self, capacity_bytes: int = 1 << 40) -> None:
        self.capacity_bytes = capacity_bytes
        self.on_operation: Callable[[str, str], None] | None = None
        """Called after each operation that changed something or made it durable, with the call's
        name and path. What it raises ends the caller there, as a crash would."""
        self.fault: Fault | None = None
        self.strikes = 0
        """Calls so far that the fault could have hit; settable, to count from now on."""
        self.struck: list[tuple[str, str]] = []
        """Every call that was made to fail, with its path."""
        self.direct_reads = 0
        """Reads past the page cache so far."""
        self.hanging: dict[str, Event] = {}
        """What is in the paths of files whose reads hang, until the event is set."""
        self.lock = RLock()
        self.power_lost = False
        """Whether this is what a power loss has left, directly or by way of copies. Settable."""
        self._root = Directory()
        self._pending: list[NameChange] = []
        self._sequence = 0
        self._used_bytes = 0
        if SimulatedFs.on_made is not None:
            SimulatedFs.on_made(self)

    # --- what a test does to it ------------------------------------------------------------------

    def inject(self, fault: Fault | None) -> None:
        """Arm a fault (or none), counting its calls from now on."""
        self.fault = fault
        self.strikes = 0

    def power_loss(self, random: Random, mode: CrashMode | None = None) -> SimulatedFs:
        """Return what a power loss at this moment leaves. This file system is not changed."""
        with self.lock:
            chosen = random.choice(_CRASH_MODES) if mode is None else mode
            loss = PowerLoss(random, chosen, self._sequence)
            views: dict[int, dict[str, Node]] = {}

            def entries_of(directory: Directory) -> dict[str, Node]:
                entries = views.get(id(directory))
                if entries is None:
                    entries = views[id(directory)] = dict(directory.durable)
                return entries

            for change in self._pending:
                if loss.keeps(change.sequence):
                    change.apply(entries_of)
            survivor = self._copy(entries_of, lambda inode: inode.after_power_loss(loss))
            survivor.power_lost = True
            return survivor

    def clone(self) -> SimulatedFs:
        """Return another one in the very same state, unsynced changes included.

        What a process killed with SIGKILL leaves behind: the kernel goes on.
        """
        with self.lock:
            other = SimulatedFs(self.capacity_bytes)
            other._root, other._pending = deepcopy((self._root, self._pending))
            other.power_lost = self.power_lost
            other._sequence = self._sequence
            other._used_bytes = self._used_bytes
            return other

    def fail_write_back(self, path: str) -> None:
        """Let what is not synced of a file fail to reach the disk, while nobody syncs it."""
        with self.lock:
            inode = self._node(path)
            if not isinstance(inode, Inode):
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            inode.fail_sync(errno.EIO)

    def hang(self, path: str) -> None:
        """Wait as long as reads of a file do. In a thread, which holds no lock."""
        for part, may_go_on in list(self.hanging.items()):
            if part in path:
                may_go_on.wait()

    def drop_page_cache(self) -> None:
        """Let no byte of a file be in the page cache that does not have to be."""
        with self.lock:
            for path in self.files():
                inode = self._node(path)
                if isinstance(inode, Inode):
                    inode.drop_pages()

    def files(self, path: str = "/") -> list[str]:
        """Return the paths of all regular files below a directory, sorted."""
        found: list[str] = []
        directory = self._directory(path)
        for name, node in directory.entries.items():
            child = f"{path.rstrip('/')}/{name}"
            if isinstance(node, Directory):
                found.extend(self.files(child))
            else:
                found.append(child)
        return sorted(found)

    def content(self, path: str) -> bytearray:
        """Return the very bytes of a file, to be changed behind everybody's back."""
        inode = self._node(path)
        if not isinstance(inode, Inode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return inode.content

    # --- what the code under test calls ----------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        with self.lock:
            directory, name = self._parent(path)
            node = directory.entries.get(name)
            if node is None and create:
                self.strike("create", path)
            self.strike("open", path)
            if isinstance(node, Directory):
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            if node is not None:
                return SimulatedFile(self, path, node)
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            inode = Inode()
            self._change_name(None, (directory, name), inode)
            self.finish("open", path)
            return SimulatedFile(self, path, inode)

    def exists(self, path: str) -> bool:
        with self.lock:
            try:
                self._node(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def is_directory(self, path: str) -> bool:
        with self.lock:
            return self.exists(path) and isinstance(self._node(path), Directory)

    def file_size(self, path: str) -> int:
        with self.lock:
            return len(self.content(path))

    def listdir(self, path: str) -> list[str]:
        with self.lock:
            self.strike("listdir", path)
            return sorted(self._directory(path).entries)

    def mkdir(self, path: str) -> None:
        with self.lock:
            directory, name = self._parent(path)
            self.strike("mkdir", path)
            if name in directory.entries:
                raise FileExistsError(errno.EEXIST, "exists already", path)
            self._change_name(None, (directory, name), Directory())
            self.finish("mkdir", path)

    def rename(self, source: str, target: str) -> None:
        with self.lock:
            self.strike("rename", source)
            node = self._node(source)
            directory, name = self._parent(target)
            replaced = directory.entries.get(name)
            if isinstance(replaced, Directory) and (replaced.entries or isinstance(node, Inode)):
                raise OSError(errno.ENOTEMPTY, "a directory is in the way", target)
            if isinstance(replaced, Inode):
                self._used_bytes -= len(replaced.content)
            self._change_name(self._parent(source), (directory, name), node)
            self.finish("rename", source)

    def unlink(self, path: str) -> None:
        with self.lock:
            self.strike("unlink", path)
            node = self._node(path)
            if isinstance(node, Directory):
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            self._used_bytes -= len(node.content)
            self._change_name(self._parent(path), None, node)
            self.finish("unlink", path)

    def rmdir(self, path: str) -> None:
        with self.lock:
            self.strike("rmdir", path)
            directory = self._directory(path)
            if directory.entries:
                raise OSError(errno.ENOTEMPTY, "not empty", path)
            self._change_name(self._parent(path), None, directory)
            self.finish("rmdir", path)

    def sync_directory(self, path: str) -> None:
        with self.lock:
            directory = self._directory(path)
            self.strike("sync_directory", path)
            remaining: list[NameChange] = []
            for change in self._pending:
                if change.touches(directory):
                    change.apply(durable_entries)
                else:
                    remaining.append(change)
            self._pending = remaining
            self.finish("sync_directory", path)

    def free_bytes(self, path: str) -> int:
        with self.lock:
            self.strike("free_bytes", path)
            return max(0, self.capacity_bytes - self._used_bytes)

    def total_bytes(self, path: str) -> int:
        with self.lock:
            self.strike("total_bytes", path)
            return self.capacity_bytes

    # --- for its files ---------------------------------------------------------------------------

    def strike(self, call: str, path: str) -> FaultKind | None:
        """Fail this call if the fault is due. Returns SHORT where it should do half its work."""
        fault = self.fault
        if (
            fault is None
            or call not in _APPLICABLE[fault.kind]
            or call in fault.spared
            or not path.endswith(fault.suffix)
        ):
            return None
        self.strikes += 1
        if self.strikes < fault.nth or (self.strikes > fault.nth and not fault.persistent):
            return None
        self.struck.append((call, path))
        match fault.kind:
            case FaultKind.SHORT:
                return FaultKind.SHORT
            case FaultKind.ENOSPC:
                raise OSError(errno.ENOSPC, "no space left", path)
            case FaultKind.EIO:
                raise OSError(errno.EIO, f"{call} failed", path)

    def finish(self, call: str, path: str) -> None:
        """Tell the observer that an operation is done."""
        if self.on_operation is not None:
            self.on_operation(call, path)

    def write(self, file: SimulatedFile, inode: Inode, data: bytes, position: int) -> int:
        """Write as much of `data` as there is space for; raise ENOSPC when there is none."""
        content = inode.content
        growth = max(0, position + len(data) - len(content))
        free = self.capacity_bytes - self._used_bytes
        if growth > free:
            data = data[: max(0, len(data) - (growth - free))]
            if not data:
                raise OSError(errno.ENOSPC, "no space left", file.path)
        self._sequence += 1
        before = len(content)
        end = position + len(data)
        if end > before:
            resize(content, end)
            self._used_bytes += end - before
            inode.lengths.append(Length(self._sequence, end))
        content[position:end] = data
        inode.touch(min(position, before), end, self._sequence)
        self.finish("write", file.path)
        return len(data)

    def truncate(self, file: SimulatedFile, inode: Inode, size: int) -> None:
        """Cut or extend a file; in doubt until the next sync."""
        before = len(inode.content)
        if size - before > self.capacity_bytes - self._used_bytes:
            raise OSError(errno.ENOSPC, "no space left", file.path)
        self._sequence += 1
        resize(inode.content, size)
        self._used_bytes += size - before
        inode.lengths.append(Length(self._sequence, size))
        inode.touch(min(size, before), max(size, before), self._sequence)
        self.finish("truncate", file.path)

    # --- inside ----------------------------------------------------------------------------------

    def _node(self, path: str) -> Node:
        node: Node = self._root
        for name in _parts(path):
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            child = node.entries.get(name)
            if child is None:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
            node = child
        return node

    def _directory(self, path: str) -> Directory:
        node = self._node(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        above, _, name = path.rpartition("/")
        return self._directory(above), name

    def _change_name(
        self,
        removed: tuple[Directory, str] | None,
        added: tuple[Directory, str] | None,
        node: Node,
    ) -> None:
        self._sequence += 1
        change = NameChange(self._sequence, removed, added, node)
        change.apply(current_entries)
        self._pending.append(change)

    def _copy(
        self,
        entries_of: Callable[[Directory], dict[str, Node]],
        copy_inode: Callable[[Inode], Inode],
    ) -> SimulatedFs:
        """Return a file system in which everything that is left is durable."""
        other = SimulatedFs(self.capacity_bytes)
        copies: dict[int, Inode] = {}

        def copy(directory: Directory) -> Directory:
            result = Directory()
            for name, node in entries_of(directory).items():
                if isinstance(node, Directory):
                    result.entries[name] = copy(node)
                    continue
                inode = copies.get(id(node))
                if inode is None:
                    inode = copies[id(node)] = copy_inode(node)
                    other._used_bytes += len(inode.content)
                result.entries[name] = inode
            result.durable = dict(result.entries)
            return result

        other._root = copy(self._root)
        return other


def _parts(path: str) -> Iterable[str]:
    return (part for part in path.split("/") if part)
