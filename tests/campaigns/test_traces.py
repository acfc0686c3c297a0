"""What is read out of a trace, and what of it a power loss would leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.campaigns.traced_disk import TracedDisk, disk_events
from tests.campaigns.traces import TraceError, read_calls, sent_frames

if TYPE_CHECKING:
    from pathlib import Path

CREATE = '7 1.0 openat(AT_FDCWD</w>, "/d/f", O_RDWR|O_CREAT, 0600) = 3</d/f> <0.1>'
WRITE = '7 1.1 pwrite64(3</d/f>, "a\\0\\"b", 4, 0) = 4 <0.1>'
SYNC = "7 1.2 fdatasync(3</d/f>) = 0 <0.1>"
SYNC_NAMES = "7 1.3 fsync(4</d>) = 0 <0.1>"
QUEUED = "io_submit(0x7f, 1, [{aio_data=0x5, aio_lio_opcode=IOCB_CMD_FDSYNC, aio_fildes=3</d/f>}])"


def replay(tmp_path: Path, *lines: str) -> TracedDisk:
    """Return the disk after all that these lines of a trace say."""
    trace = tmp_path / "trace"
    trace.write_text("".join(f"{line}\n" for line in lines))
    disk = TracedDisk("/d")
    for event in disk_events(read_calls(trace), "/d"):
        disk.take(event)
    return disk


def test_synced_file_and_name_are_durable(tmp_path: Path) -> None:
    """What was written is durable once the file and its directory have been synced."""
    disk = replay(tmp_path, CREATE, WRITE, SYNC, SYNC_NAMES)
    assert {"f": b'a\0"b'} == disk.durable_files()


def test_name_is_not_durable_by_the_sync_of_its_file(tmp_path: Path) -> None:
    """A sync of a new file leaves its name in doubt."""
    disk = replay(tmp_path, CREATE, WRITE, SYNC)
    assert {"f": b'a\0"b'} == disk.current_files()
    assert {} == disk.durable_files()


@pytest.mark.parametrize(
    "sync",
    [
        # It has begun before the write had returned.
        ("8 1.0 fdatasync(3</d/f> <unfinished ...>", WRITE, "8 1.2 <... fdatasync resumed>) = 0"),
        # It has not returned.
        (WRITE, "8 1.2 fdatasync(3</d/f> <unfinished ...>"),
        # It has failed.
        (WRITE, "8 1.2 fdatasync(3</d/f>) = -1 EIO (Input/output error) <0.1>"),
        # It only begins to write.
        (WRITE, "8 1.2 sync_file_range(3</d/f>, 0, 0, SYNC_FILE_RANGE_WRITE) = 0 <0.1>"),
        # Nobody has heard of its end.
        (WRITE, f"8 1.2 {QUEUED} = 1 <0.1>"),
        # The kernel has not taken it.
        (WRITE, f"8 1.2 {QUEUED} = 0 <0.1>"),
        # It has failed, and its call has not.
        (
            WRITE,
            f"8 1.2 {QUEUED} = 1 <0.1>",
            "8 1.3 io_getevents(0x7f, 1, 1, [{data=0x5, obj=0x1, res=-5, res2=0}], NULL) = 1",
        ),
    ],
)
def test_sync_that_proves_nothing(tmp_path: Path, sync: tuple[str, ...]) -> None:
    """A write is in doubt until a sync that began after it has returned with success."""
    disk = replay(tmp_path, CREATE, SYNC_NAMES, *sync)
    assert {"f": b'a\0"b'} == disk.current_files()
    assert {"f": b""} == disk.durable_files()


def test_sync_in_the_kernels_queue(tmp_path: Path) -> None:
    """A sync in the kernel's queue counts from its success on."""
    disk = replay(
        tmp_path,
        CREATE,
        SYNC_NAMES,
        WRITE,
        f"8 1.2 {QUEUED} = 1 <0.1>",
        "8 1.3 io_getevents(0x7f, 1, 1, [{data=0x5, obj=0x1, res=0, res2=0}], NULL) = 1 <0.1>",
    )
    assert {"f": b'a\0"b'} == disk.durable_files()


def test_unsynced_rename_leaves_the_old_name(tmp_path: Path) -> None:
    """A rename is in doubt until its directory has been synced after it."""
    before = (CREATE, WRITE, SYNC, SYNC_NAMES, '7 2.0 rename("/d/f", "/d/g") = 0 <0.1>')
    assert {"f": b'a\0"b'} == replay(tmp_path, *before).durable_files()
    after = replay(tmp_path, *before, "7 2.1 fsync(4</d>) = 0 <0.1>")
    assert {"g": b'a\0"b'} == after.durable_files()


def test_file_is_created_though_its_process_is_killed_in_the_call(tmp_path: Path) -> None:
    """What another process then removes was there."""
    killed = CREATE.replace("= 3</d/f>", "= ?")
    assert killed != CREATE
    assert {"f": b""} == replay(tmp_path, killed).current_files()
    assert {} == replay(tmp_path, killed, '8 2.0 unlink("/d/f") = 0 <0.1>').current_files()


@pytest.mark.parametrize(
    "line",
    [
        '7 1.1 pwrite64(3</d/f>, "abc"..., 4, 0) = 4 <0.1>',
        "7 1.1 mmap(NULL, 9, PROT_READ|PROT_WRITE, MAP_SHARED, 3</d/f>, 0) = 0x7f <0.1>",
        "7 1.1 fallocate(3</d/f>, 0, 0, 4) = 0 <0.1>",
        '7 1.1 link("/d/f", "/d/g") = 0 <0.1>',
        "7 1.1 no call",
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, line: str) -> None:
    """A call on our files whose effect is not known, or a text that was cut, ends the reading."""
    with pytest.raises(TraceError):
        replay(tmp_path, CREATE, line)


def test_answer_is_sent_by_the_call_with_its_last_byte(tmp_path: Path) -> None:
    """An answer in two pieces counts from the beginning of the call that sends the second."""
    trace = tmp_path / "trace"
    peer = "9<TCP:[127.0.0.1:9092->127.0.0.1:4000]>"
    trace.write_text(
        f'7 1.0 write({peer}, "\\0\\0\\0\\5\\0\\0\\0\\3x\\0\\0", 11) = 10 <0.1>\n'
        f'7 1.1 write({peer}, "\\0\\0\\4\\0\\0\\0\\4", 7 <unfinished ...>\n'
    )
    frames = sent_frames(read_calls(trace))
    assert {(4000, 3): 0, (4000, 4): 2} == {place: call.entered for place, call in frames.items()}


def test_two_answers_to_one_request_are_refused(tmp_path: Path) -> None:
    """A second answer at the same place cannot be told from the first, and ends the reading."""
    trace = tmp_path / "trace"
    peer = "9<TCP:[127.0.0.1:9092->127.0.0.1:4000]>"
    answer = f'write({peer}, "\\0\\0\\0\\4\\0\\0\\0\\3", 8) = 8 <0.1>'
    trace.write_text(f"7 1.0 {answer}\n7 1.1 {answer}\n")
    with pytest.raises(TraceError):
        sent_frames(read_calls(trace))


def test_two_syncs_of_one_file_in_one_call_are_refused(tmp_path: Path) -> None:
    """Two syncs that nothing tells apart end the reading."""
    one = "{aio_data=0x%d, aio_lio_opcode=IOCB_CMD_FDSYNC, aio_fildes=3</d/f>}"
    events = "{data=0x5, obj=0x1, res=0, res2=0}, {data=0x6, obj=0x1, res=0, res2=0}"
    with pytest.raises(TraceError):
        replay(
            tmp_path,
            CREATE,
            f"8 1.2 io_submit(0x7f, 2, [{one % 5}, {one % 6}]) = 2 <0.1>",
            f"8 1.3 io_getevents(0x7f, 2, 2, [{events}], NULL) = 2 <0.1>",
        )
