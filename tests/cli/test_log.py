from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.testing.process import GatewayProcess
from tests.cli.conftest import Commands
from tests.cli.lying import send
from tests.records.lies import LIES, batch, honest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with one topic of two partitions and ten records, its server stopped."""
    data_dir = tmp_path_factory.mktemp("log") / "data"
    with GatewayProcess(data_dir) as process:
        kgw = Commands(process.bootstrap)
        kgw.succeed("topics", "create", "events", "-p", "2")
        for partition in range(2):
            lines = "".join(f"key:value-{number}\n" for number in range(partition, 10, 2))
            options = ("-p", str(partition), "-k", ":", "--batch-records", "1")
            kgw.succeed("produce", "events", *options, data=lines)
    return data_dir


@pytest.fixture
def data_dir(template: Path, tmp_path: Path) -> Path:
    """A copy of the directory, to be damaged at will."""
    return shutil.copytree(template, tmp_path / "data")


def segment(data_dir: Path) -> Path:
    """Return one segment file that holds records."""
    return next(path for path in sorted(data_dir.glob("partitions/*/*.log")) if path.stat().st_size)


def test_a_sound_directory_has_no_problems(offline: Commands, data_dir: Path) -> None:
    """After an orderly stop there is nothing to complain about."""
    assert "No problems found.\n" == offline.succeed("log", "check", str(data_dir))
    assert [] == offline.json("log", "check", str(data_dir))["problems"]


@pytest.mark.damages_storage("all segments are removed")
def test_a_partition_without_records_is_dumped_as_nothing(
    offline: Commands, data_dir: Path
) -> None:
    """It has a directory and no segment yet."""
    directory = segment(data_dir).parent
    for path in directory.glob("0*"):
        path.unlink()
    assert "" == offline.succeed("log", "dump", str(directory))


@pytest.mark.damages_storage("a bit is flipped")
def test_a_flipped_bit_is_found(offline: Commands, data_dir: Path) -> None:
    """Damage is named with its file, and fails the command."""
    path = segment(data_dir)
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    result = offline.run("log", "check", str(data_dir))
    assert ExitCode.FAILED == result.exit_code
    assert f"problem: {path}" in result.stdout
    assert ExitCode.FAILED == offline.run("log", "dump", str(path)).exit_code


def test_batches_are_dumped_with_their_records(offline: Commands, data_dir: Path) -> None:
    """A segment, a partition's directory and the whole directory show the same batches."""
    by_directory = [
        json.loads(line)
        for line in offline.succeed(
            "log", "dump", str(data_dir), "--records", "--json"
        ).splitlines()
    ]
    assert 10 == len(by_directory)
    values = {record["value"] for batch in by_directory for record in batch["records"]}
    assert {f"value-{number}" for number in range(10)} == values
    assert {True} == {batch["crc_matches"] for batch in by_directory}
    path = segment(data_dir)
    one_segment = offline.succeed("log", "dump", str(path), "--json").splitlines()
    assert one_segment == offline.succeed("log", "dump", str(path.parent), "--json").splitlines()
    text = offline.succeed("log", "dump", str(path), "--records")
    assert "base_offset=0" in text
    assert "value=value-" in text


@pytest.mark.damages_storage("a file is cut")
def test_a_cut_file_is_dumped_to_where_it_ends(offline: Commands, data_dir: Path) -> None:
    """What cannot be read is told with its position."""
    path = segment(data_dir)
    path.write_bytes(path.read_bytes()[:-5])
    result = offline.run("log", "dump", str(path))
    assert ExitCode.FAILED == result.exit_code
    assert "bytes are damaged" in result.stdout
    result = offline.run("log", "dump", str(path), "--json")
    assert "damage" in json.loads(result.stdout.splitlines()[-1])


def test_a_lying_batch_is_found_where_records_are_read(offline: Commands, tmp_path: Path) -> None:
    """Check and dump name the batch whose records are not what its header says, and go on."""
    data_dir = tmp_path / "data"
    with GatewayProcess(data_dir) as process:
        offline.succeed("topics", "create", "lies", "--partitions", "1", "-b", process.bootstrap)
        lie = batch(*LIES["three records claimed, one there"]())
        good = batch(honest(1), 1)
        assert [0, 1, 4] == send(process.bootstrap, "lies", [good, lie, bytes(good)])
    assert "No problems found.\n" == offline.succeed("log", "check", str(data_dir))
    result = offline.run("log", "check", str(data_dir), "--records", "--json")
    assert ExitCode.FAILED == result.exit_code
    (problem,) = json.loads(result.stdout)["problems"]
    assert str(segment(data_dir)) == problem["path"]
    assert problem["detail"].startswith("partition 0: the batch at offset 1 is not what its header")
    offline.succeed("log", "dump", str(data_dir))
    for option, exit_code in (([], ExitCode.FAILED), (["--skip-damaged"], ExitCode.DAMAGED)):
        result = offline.run("log", "dump", str(data_dir), "--records", "--json", *option)
        assert exit_code == result.exit_code
        batches = [json.loads(line) for line in result.stdout.splitlines()]
        assert [(0, None), (1, "record 1: a number is cut off"), (4, None)] == [
            (one["base_offset"], one["problem"]) for one in batches
        ]
        counts = {"damaged_batches": 0, "damaged_bytes": 0, "lying_batches": 1}
        assert counts == json.loads(result.stderr)


@pytest.mark.damages_storage("a batch is damaged")
@pytest.mark.parametrize("has_side_file", [True, False])
@pytest.mark.parametrize("spoilt", [8, 16, 70])
def test_a_dump_goes_on_behind_damage(
    offline: Commands, data_dir: Path, spoilt: int, has_side_file: bool
) -> None:
    """In the length, the format or the records of a batch: all others are printed, and a count."""
    path = segment(data_dir)
    lines = offline.succeed("log", "dump", str(path), "--records", "--json").splitlines()
    batches = [json.loads(line) for line in lines]
    assert 5 == len(batches)
    data = bytearray(path.read_bytes())
    data[batches[1]["position"] + spoilt] ^= 0x40
    path.write_bytes(data)
    if not has_side_file:
        path.with_suffix(".checksums").unlink()
    result = offline.run("log", "dump", str(path), "--records", "--json")
    assert ExitCode.FAILED == result.exit_code
    assert (2 if spoilt < 70 else 5) == len(result.stdout.splitlines())
    result = offline.run("log", "dump", str(path), "--records", "--json", "--skip-damaged")
    assert ExitCode.DAMAGED == result.exit_code
    found = [json.loads(line) for line in result.stdout.splitlines()]

    def shown(one: dict[str, object]) -> tuple[object, object]:
        return one["base_offset"], one["records"]

    whole = [shown(one) for one in found if "damage" not in one and one["crc_matches"]]
    assert [shown(one) for one in (batches[0], *batches[2:])] == whole
    counts = json.loads(result.stderr)
    size_bytes = batches[1]["size_bytes"]
    if spoilt < 70:
        assert {"damaged_batches": 0, "damaged_bytes": size_bytes, "lying_batches": 0} == counts
    else:
        assert {"damaged_batches": 1, "damaged_bytes": 0, "lying_batches": 0} == counts
        assert [] == found[1]["records"]


@pytest.mark.damages_storage("a batch is damaged")
@pytest.mark.parametrize("has_side_file", [True, False])
@pytest.mark.parametrize("spoilt", ["base_offset", "record_count", "records"])
def test_a_dump_shows_no_number_that_rot_has_made_up(
    offline: Commands, data_dir: Path, spoilt: str, has_side_file: bool
) -> None:
    """What the header's checksum or the batch's vouches for is shown, the rest as unproven."""
    path = segment(data_dir)
    whole = json.loads(offline.succeed("log", "dump", str(path), "--json").splitlines()[1])
    data = bytearray(path.read_bytes())
    data[whole["position"] + {"base_offset": 5, "record_count": 58, "records": 70}[spoilt]] ^= 0x40
    path.write_bytes(data)
    if not has_side_file:
        path.with_suffix(".checksums").unlink()
    command = ("log", "dump", str(path), "--skip-damaged")
    batch = json.loads(offline.run(*command, "--json").stdout.splitlines()[1])
    numbers = set(whole) - {"segment", "position", "crc_matches", "header_matches"}
    expected: dict[tuple[str, bool], set[str]] = {
        ("base_offset", True): {"base_offset", "last_offset", "leader_epoch"},
        ("base_offset", False): set(),  # no checksum is left that could fail
        ("records", True): set(),
    }
    unproven = expected.get((spoilt, has_side_file), numbers)
    assert unproven == set(batch.get("unproven", ()))
    assert {None} >= {batch[name] for name in unproven}
    if (spoilt, has_side_file) != ("base_offset", False):
        assert all(whole[name] == batch[name] for name in numbers - unproven)
    line = offline.run(*command).stdout.splitlines()[2]
    assert bool(unproven) == (" unproven: " in line)


@pytest.mark.slow
def test_a_lost_database_loses_no_records(offline: Commands, data_dir: Path) -> None:
    """Topics come back from their partitions' directories, and their records with them."""
    assert [] == offline.json("log", "adopt", str(data_dir))
    for path in data_dir.glob("meta.sqlite*"):
        path.unlink()
    (problem,) = json.loads(offline.run("log", "check", str(data_dir), "--json").stdout)["problems"]
    assert "topic events" in problem["detail"]
    assert "kgw log adopt" in problem["detail"]
    (found,) = offline.json("log", "adopt", str(data_dir), "--dry-run")
    assert [] == [*data_dir.glob("meta.sqlite*")]
    assert ("events", [0, 1], False) == (found["topic"], found["partitions"], found["adopted"])
    assert "adopted" in offline.succeed("log", "adopt", str(data_dir))
    with GatewayProcess(data_dir) as process:
        consumed = offline.succeed("consume", "events", "-b", process.bootstrap)
    assert {f"value-{number}" for number in range(10)} == set(consumed.splitlines())


def test_what_is_no_data_directory_has_its_own_exit_code(offline: Commands, tmp_path: Path) -> None:
    """A missing directory, an empty one and a file that is no segment."""
    missing, other = tmp_path / "missing", tmp_path / "other.txt"
    other.write_text("text")
    for command in ("check", "adopt"):
        for path in (missing, tmp_path):
            message = offline.fail(ExitCode.DATA_DIRECTORY, "log", command, str(path))
            assert "not a data directory" in message
    assert "no such file" in offline.fail(
        ExitCode.DATA_DIRECTORY, "log", "dump", str(tmp_path / "00000000000000000000.log")
    )
    assert "neither a segment" in offline.fail(
        ExitCode.DATA_DIRECTORY, "log", "dump", str(tmp_path)
    )
    assert "is not a segment" in offline.fail(ExitCode.USAGE, "log", "dump", str(other))


@pytest.mark.slow
def test_a_directory_in_use_is_left_alone(offline: Commands, data_dir: Path) -> None:
    """A running server keeps its directory to itself."""
    with GatewayProcess(data_dir):
        for command in ("check", "adopt"):
            assert offline.fail(ExitCode.DATA_DIRECTORY, "log", command, str(data_dir))


def test_what_compaction_has_left_is_dumped(offline: Commands, tmp_path: Path) -> None:
    """An empty batch is one without records; a tombstone's batch says when it may go."""
    from kgw.records.batch import read_batch
    from kgw.records.builder import BatchBuilder
    from kgw.records.compaction import CompactionPlan, Tally, compact_batch, make_filler

    builder = BatchBuilder(base_offset=4, leader_epoch=0)
    builder.add(key=b"key", timestamp_ms=1_000)
    plan = CompactionPlan({}, end_offset=9, now_ms=10_000, delete_retention_ms=5_000)
    compacted = compact_batch(read_batch(builder.build()), plan, Tally())
    assert compacted is not None
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(make_filler(0, 4, 0).buffer) + bytes(compacted.buffer))
    lines = offline.succeed("log", "dump", str(path), "--json").splitlines()
    empty, tombstone = (json.loads(line) for line in lines)
    assert (0, 3, 0) == (empty["base_offset"], empty["last_offset"], empty["record_count"])
    assert "delete_horizon" not in empty
    assert "1970-01-01T00:00:15" in tombstone["delete_horizon"]


def test_what_ends_transactions_is_dumped(offline: Commands, tmp_path: Path) -> None:
    """Whose it was, how it ended, by which coordinator; a control batch of no known kind, too."""
    from kgw.records.builder import BatchBuilder

    contents = [
        (b"\0\0\0\0", b"\0\0\0\0\0\7"),
        (b"\0\0\0\1", b"\0\0\0\0\0\7 and what a later version adds"),
        (b"\0\0\0\5", b"\0\0\0\0\0\7"),
        (b"\0", b""),
    ]
    batches = []
    for offset, (key, value) in enumerate(contents):
        builder = BatchBuilder(
            base_offset=offset,
            producer_id=4000,
            producer_epoch=3,
            is_transactional=True,
            is_control=True,
        )
        builder.add(key=key, value=value, timestamp_ms=1_000)
        batches.append(bytes(builder.build()))
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(batches))
    lines = offline.succeed("log", "dump", str(path), "--json", "--records").splitlines()
    dumped = [json.loads(line) for line in lines]
    assert [("abort", 7), ("commit", 7), ("unknown", None), ("unknown", None)] == [
        (one["marker"], one["coordinator_epoch"]) for one in dumped
    ]
    assert {(4000, 3, True, True)} == {
        (one["producer_id"], one["producer_epoch"], one["transactional"], one["control"])
        for one in dumped
    }
    text = offline.succeed("log", "dump", str(path)).splitlines()[1]
    assert text.endswith("transactional=true control=true marker=abort coordinator_epoch=7")


def test_a_data_directory_has_no_loss_to_accept(offline: Commands, tmp_path: Path) -> None:
    """Its logs go on behind what they have lost by themselves."""
    told = offline.fail(ExitCode.USAGE, "log", "accept-loss", str(tmp_path), "--yes")
    assert "a data directory goes on by itself" in told
