"""What reading commands do at batches that are damaged, or not what their header says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.records.batch import Compression
from kgw.testing.process import GatewayProcess
from tests.cli.conftest import Commands
from tests.cli.lying import send
from tests.records.lies import LIES, batch, honest

if TYPE_CHECKING:
    from pathlib import Path

LIE = "three records claimed, one there"
VALUE = "v" * 40


def with_lie(kgw: Commands, topic: str, compression: Compression = Compression.NONE) -> None:
    """Make a topic of an honest record, a lying batch at offsets 1 to 3, and an honest record."""
    kgw.succeed("topics", "create", topic, "--partitions", "1")
    good = batch(honest(1), 1)
    lie = batch(*LIES[LIE](), compression)
    assert [0, 1, 4] == send(kgw.bootstrap, topic, [good, lie, bytes(good)])


@pytest.mark.damages_storage("a batch is damaged")
@pytest.mark.slow
@pytest.mark.timeout(60)
def test_damage_is_said_and_can_be_passed(tmp_path: Path) -> None:
    """Records that fail their checksum: an error with their offsets, or a note and what follows."""
    with GatewayProcess(tmp_path / "data") as gateway:
        kgw = Commands(gateway.bootstrap)
        kgw.succeed("topics", "create", "spoilt", "--partitions", "1")
        # More than the offsets among which the end of damage is looked for without the option.
        spoilt = batch(honest(1040), 1040)
        sent = [batch(honest(1), 1), spoilt, batch(honest(1), 1)]
        assert [0, 1, 1041] == send(kgw.bootstrap, "spoilt", sent)
        gateway.stop()
        (segment,) = (tmp_path / "data" / "partitions").glob("*/*.log")
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 1
        segment.write_bytes(content)
        gateway.start()
        kgw = Commands(gateway.bootstrap)
        result = kgw.run("consume", "spoilt")
        assert ExitCode.FAILED == result.exit_code
        assert f"{VALUE}\n" == result.stdout
        assert "records from offset 1 on are damaged: the server answers CORRUPT" in result.stderr
        result = kgw.run("consume", "spoilt", "--skip-damaged")
        assert ExitCode.DAMAGED == result.exit_code
        assert f"{VALUE}\n{VALUE}\n" == result.stdout
        named, counted = result.stderr.splitlines()
        assert "topic spoilt partition 0: records 1 to 1040 are damaged: the server" in named
        assert "Skipped 1040 damaged offsets in 1 place." == counted


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_a_lying_batch_is_named(kgw: Commands, compression: Compression) -> None:
    """What lies before it is printed, then an error says partition, offset and what is wrong."""
    topic = f"named-{compression.name}"
    with_lie(kgw, topic, compression)
    result = kgw.run("consume", topic)
    assert ExitCode.FAILED == result.exit_code
    assert f"{VALUE}\n" == result.stdout
    assert (
        f"topic {topic} partition 0: records 1 to 3 are damaged: the batch at offset 1 is not what "
        "its header says: record 1: a number is cut off; --skip-damaged goes on behind them"
    ) in result.stderr


def test_a_lying_batch_is_passed(kgw: Commands) -> None:
    """With --skip-damaged everything else is printed, the batch is named, and its offsets count."""
    with_lie(kgw, "passed")
    result = kgw.run("consume", "passed", "--skip-damaged", "--offsets")
    assert ExitCode.DAMAGED == result.exit_code
    assert [f"0:0\t{VALUE}", f"0:4\t{VALUE}"] == [
        line.replace(" ", "\t") for line in result.stdout.splitlines()
    ]
    named, counted = result.stderr.splitlines()
    assert "the batch at offset 1 is not what its header says" in named
    assert "Skipped 3 damaged offsets in 1 place." == counted
    result = kgw.run("consume", "passed", "--skip-damaged", "--json")
    assert [0, 4] == [json.loads(line)["offset"] for line in result.stdout.splitlines()]
    damaged, skipped = map(json.loads, result.stderr.splitlines())
    assert ("passed", 0, 1, 4) == tuple(
        damaged["damaged"][name] for name in ("topic", "partition", "start_offset", "end_offset")
    )
    assert {"skipped": {"places": 1, "offsets": 3}} == skipped


def test_nothing_skipped_is_a_success(kgw: Commands) -> None:
    """--skip-damaged changes nothing of a topic without damage, nor of records before it."""
    kgw.succeed("produce", "sound", data="one\n")
    assert "one\n" == kgw.succeed("consume", "sound", "--skip-damaged")
    with_lie(kgw, "later")
    assert f"{VALUE}\n" == kgw.succeed("consume", "later", "--skip-damaged", "--max-records", "1")


def test_the_doctor_names_lying_batches_if_asked(kgw: Commands) -> None:
    """--read names them all as problems, and counts the records that can be read."""
    with_lie(kgw, "examined")
    with_lie(kgw, "beside")
    assert "Records read" not in kgw.succeed("doctor")
    result = kgw.run("doctor", "--read", "examined", "--read", "beside", "--read", "missing")
    assert ExitCode.FAILED == result.exit_code
    for topic in ("examined", "beside"):
        assert f"Records read of topic {topic}: 2.\n" in result.stdout
        assert (
            f"problem: topic {topic} partition 0: records 1 to 3 are damaged: the batch at offset "
            "1 is not what its header says"
        ) in result.stdout
    assert "problem: topic missing cannot be read" in result.stdout


def test_the_doctor_says_what_is_validated(kgw: Commands) -> None:
    """The server's default, and the topics where it is another."""
    assert "kgw.validation=headers" in kgw.succeed("doctor")
    kgw.succeed("topics", "create", "checked", "--set", "kgw.validation=records")
    assert ". Other topics: checked=records." in kgw.succeed("doctor")
    found = kgw.json("doctor")
    assert {"default": "headers", "topics": {"checked": "records"}} == found["validation"]
    kgw.succeed("topics", "delete", "checked", "--yes")
