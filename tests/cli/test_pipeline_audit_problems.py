"""The checkers are checked: each problem is planted alone, and the audit names it, and only it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import Commands
from tests.pipeline.planted_damage import PLANTINGS, Damage, make_archive, make_gaps
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTopics]:
    """A gateway in memory."""
    with ServedTopics() as topics:
        yield topics


@pytest.fixture(scope="module")
def whole(served: ServedTopics, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, UUID]:
    """An archive without a fault, of which each test takes a copy, and the id of its topic."""
    root = tmp_path_factory.mktemp("archive")
    return root, make_archive(served, root)


@pytest.fixture(scope="module")
def with_gaps(served: ServedTopics, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a topic that has nothing at some offsets."""
    root = tmp_path_factory.mktemp("gaps")
    make_gaps(served, root)
    return root


def audited(kgw: Commands, level: int, *arguments: str) -> list[tuple[int, str]]:
    """Return levels and names of what the command finds; its exit code says whether it does."""
    result = kgw.run("pipeline", "audit", "--level", str(level), *arguments, "--json")
    found = [(one["level"], one["finding"]) for one in json.loads(result.stdout)["findings"]]
    assert (1 if found else 0) == result.exit_code, result.output
    return found


@pytest.mark.parametrize("name", PLANTINGS)
def test_each_damage_of_an_archive_is_named(
    served: ServedTopics, whole: tuple[Path, UUID], with_gaps: Path, tmp_path: Path, name: str
) -> None:
    """By the level that it belongs to, and by no level that reads less."""
    planting = PLANTINGS[name]
    root = tmp_path / "archive"
    shutil.copytree(with_gaps if planting.is_of_gaps else whole[0], root)
    planting.plant(Damage(root, whole[1]))
    kgw = Commands(served.address)
    for level in range(planting.level + 1):
        expected = [one for one in planting.expected if one[0] <= level]
        assert expected == audited(kgw, level, "--archive", str(root))


def test_an_archive_without_damage_is_whole(
    served: ServedTopics, whole: tuple[Path, UUID], with_gaps: Path, tmp_path: Path
) -> None:
    """By every level, with a table and without; a gap that is allowed is none."""
    root = tmp_path / "archive"
    shutil.copytree(whole[0], root)
    kgw = Commands(served.address)
    damage = Damage(root, whole[1])
    for has_table in (False, True):
        if has_table:
            damage.publish()
        for level in range(4):
            assert [] == audited(kgw, level, "--archive", str(root))
    assert [] == audited(kgw, 3, "--archive", str(with_gaps), "--allow-gaps")
