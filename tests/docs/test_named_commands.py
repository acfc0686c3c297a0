"""Every `kgw` command that a page names exists, with the options that the page gives it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from kgw.cli.main import main
from kgw.config import SERVER_SETTINGS, TOPIC_SETTINGS

ROOT = Path(__file__).resolve().parents[2]
# Pages that are written by hand; a page of decisions keeps the commands of its day.
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"^```\w*[^\n]*\n(.*?)^```$|`([^`\n]+)`", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?:^|[|;&(])\s*(?:\.venv/bin/)?(kgw [a-z][^|;&<>#)]*)")


def commands(page: Path) -> list[str]:
    """The commands in the code of a page, one a line."""
    found: list[str] = []
    for block, inline in CODE.findall(page.read_text(encoding="utf-8")):
        code = (block or inline).replace("\\\n", " ")
        if inline and not inline.startswith("kgw "):
            continue
        for line in code.splitlines():
            found += [one.strip() for one in COMMAND.findall(line)]
    return found


def problem(text: str) -> str | None:
    """What is wrong with a command, None if nothing is."""
    try:
        words = shlex.split(text)[1:]
    except ValueError:  # a quotation that goes on where the command was cut off
        words = text.split()[1:]
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        if name in {"...", "…"}:  # prose: `kgw groups ... --json`
            return None
        context = click.Context(command)
        found = command.get_command(context, name)
        if found is None and command.name == "backup" and name.startswith(("/", "seaweedmq:")):
            # `kgw backup DATA_DIR` is `kgw backup create DATA_DIR`.
            found = command.get_command(context, "create")
        if found is None:
            return f"no command {name}"
        command = found
    options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    options |= {"-h", "--help"}
    for index, word in enumerate(words):
        name = word.partition("=")[0]
        if re.fullmatch(r"--[a-z-]+|-[a-zA-Z]", name) and name not in options:
            return f"no option {name}"
        if word == "--set" and index + 1 < len(words):
            setting, has_value, _ = words[index + 1].partition("=")
            if has_value and setting not in SERVER_SETTINGS | TOPIC_SETTINGS and setting.islower():
                return f"no setting {setting}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page: Path) -> None:
    """Groups, commands, options and the settings of --set."""
    assert {} == {one: found for one in commands(page) if (found := problem(one))}


def test_something_is_looked_at() -> None:
    """The rule finds commands, in blocks and in lines, and knows a wrong one."""
    assert len(commands(ROOT / "docs" / "tutorial.md")) > 30
    assert "no option --never" == problem("kgw topics list --never")
    assert "no command lists" == problem("kgw topics lists")
    assert "no setting no.such" == problem("kgw serve --set no.such=1")
