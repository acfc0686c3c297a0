from __future__ import annotations

from pathlib import Path

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.client.client_properties import ALIASES, IGNORED, OBEYED
from kgw.config import load_config
from tests.cli.test_main import LEAVES

GUIDE = Path(__file__).parents[2] / "docs" / "command-line.md"


@pytest.mark.parametrize("path", [path for path, _ in LEAVES], ids=" ".join)
def test_every_command_is_in_the_guide(path: tuple[str, ...]) -> None:
    """What is not documented does not exist: the shape of each JSON result is written down."""
    assert f"`{' '.join(path)}`" in GUIDE.read_text(encoding="utf-8")


def test_every_exit_code_is_in_the_guide() -> None:
    """The table of exit codes is the one that the program has."""
    text = GUIDE.read_text(encoding="utf-8")
    for code in ExitCode:
        assert f"| {code.value} | {code.meaning} |" in text


def test_every_property_of_kafkas_clients_is_in_the_guide() -> None:
    """Which are obeyed, with their meaning, and which are ignored."""
    text = GUIDE.read_text(encoding="utf-8")
    for name, meaning in OBEYED.items():
        assert f"| `{name}` | {meaning} |" in text
    for alias, kafkas in ALIASES.items():
        assert f"`{alias}` for `{kafkas}`" in text
    assert f"are ignored: {', '.join(f'`{name}`' for name in IGNORED)}." in text


def test_the_guides_configuration_is_one(tmp_path: Path) -> None:
    """The TOML that the guide shows is taken, and means what the text says."""
    text = GUIDE.read_text(encoding="utf-8")
    file = tmp_path / "kgw.toml"
    file.write_text(text.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    config = load_config(file)
    assert (3, 5000, 100, 64 << 20, 5000) == (
        config.num_partitions,
        config.max_connections,
        config.max_connections_per_ip,
        config.cache_bytes,
        config.shutdown_timeout_ms,
    )
