from __future__ import annotations

from typing import TYPE_CHECKING

from tests.messages import messages_of, unsaid

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

import importlib.util

SOURCE = """
def look(path, number, error):
    message = f"{path}: {number} is "
    message += "too much"
    if number == 1:
        raise Wrong(message)
    if number == 2:
        raise Wrong("one " + f"of {number}", path)
    if number == 3:
        raise Other("no matter")
    raise Wrong(str(error)) from error


def look_on(number):
    yield told.Wrong("odd" if number else f"even {number}", why="nothing")
"""


def _module(path: Path) -> ModuleType:
    file = path / "looking.py"
    file.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("looking", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_messages_are_those_of_the_source(tmp_path: Path) -> None:
    """Parts that are filled in are left open; what comes from elsewhere is none."""
    assert [
        "{}: {} is ",
        "too much",
        "one of {}",
        "odd",
        "even {}",
        "nothing",
    ] == messages_of(_module(tmp_path), "Wrong")


def test_a_message_that_nobody_tries_is_found() -> None:
    """By words of it that no test expects."""
    assert ["{} is odd"] == unsaid(["{} is odd", "{} is even"], ["is even", "is prime"])
