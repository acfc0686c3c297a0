from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.cli.errors import ExitCode
from kgw.testing.process import GatewayProcess
from tests.cli.conftest import Commands

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_damage_is_said_and_can_be_passed(tmp_path: Path) -> None:
    """Records that fail their checksum: an error with their offsets, or a note and what follows."""
    with GatewayProcess(tmp_path / "data") as gateway:
        kgw = Commands(gateway.bootstrap)
        for value in ("first", "second", "third"):
            kgw.succeed("produce", "spoilt", data=f"{value}\nof {value}\n")
        gateway.stop()
        (segment,) = (tmp_path / "data" / "partitions").glob("*/*.log")
        content = bytearray(segment.read_bytes())
        content[content.index(b"of second")] ^= 1
        segment.write_bytes(content)
        gateway.start()
        kgw = Commands(gateway.bootstrap)
        result = kgw.run("consume", "spoilt")
        assert ExitCode.FAILED == result.exit_code
        assert "first\nof first\n" == result.stdout
        assert "records 2 to 3 are damaged; --skip-damaged" in result.stderr
        result = kgw.run("consume", "spoilt", "--skip-damaged")
        assert ExitCode.OK == result.exit_code
        assert "first\nof first\nthird\nof third\n" == result.stdout
        assert "records 2 to 3 are damaged" in result.stderr
