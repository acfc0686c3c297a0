"""What the shells offer when TAB is pressed."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.shell_completion import CompletionItem

from kgw.cli.completion.shells import SHELLS, VARIABLE, Bash, kept
from kgw.cli.completion.suggestions import teach
from kgw.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Commands

NOBODY = "127.0.0.1:1"


def offered(line: str) -> list[str]:
    """Return what bash is offered at the end of a line, with its types where they are others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMP_LINE", line)
        patch.setenv("COMP_POINT", str(len(os.fsencode(line))))
        patch.setenv("COMP_WORDBREAKS", " \t\n\"'><=;|&(:")
        answer = Bash(main, {}, "kgw", VARIABLE).complete()
    return [one.removeprefix("plain,") for one in answer.splitlines()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kgw topics de", ["delete", "delete-records", "describe"]),
        ("kgw pipeline a", ["archive", "audit"]),
        ("kgw topics create --rep", ["--replication-factor"]),
        ("kgw completion ", ["bash", "zsh", "fish"]),
        ("kgw produce t --acks ", ["all", "1", "0"]),
        ("kgw serve --set num.p", ["beginning,num.partitions="]),
        ("kgw serve --set=num.p", ["beginning,num.partitions="]),
        ("kgw serve --set auto.create.topics.enable=", ["beginning,", "true", "false"]),
        ("kgw serve --set=auto.create.topics.enable=f", ["false"]),
        ("kgw topics create x --set max.m", ["beginning,max.message.bytes="]),
        ("kgw topics alter x --unset max.m", ["max.message.bytes"]),
        ("kgw config alter --unset num.p", ["num.partitions"]),
        ("kgw serve --data-dir ", ["dir,"]),
        ("kgw serve --data-dir a-f", ["dir,"]),
        ("kgw serve --config ", ["file,"]),
        ("kgw log check ", ["file,"]),
        ("kgw topics create ", []),
        ("kgw 'unclosed", []),
    ],
)
def test_what_needs_no_server(line: str, expected: list[str]) -> None:
    """Commands, options, choices, settings and their values, files and folders."""
    assert expected == offered(line)


def commit(kgw: Commands, group: str, topic: str, folder: Path) -> None:
    """Let there be a group."""
    undo = str(folder / "undo.json")
    reset = ["groups", "reset-offsets", group, "-t", topic, "--to-earliest"]
    kgw.succeed(*reset, "--execute", "--undo-file", undo)
    Path(undo).unlink()


def test_names_of_a_running_server(kgw: Commands, tmp_path: Path) -> None:
    """Topics and groups come from the server that --bootstrap names, wherever it stands."""
    kgw.succeed("topics", "create", "completed.orders", "completed.other")
    commit(kgw, "completed:group", "completed.orders", tmp_path)
    server = kgw.bootstrap

    assert ["completed.orders"] == offered(f"kgw topics describe -b {server} completed.or")
    assert ["completed.other"] == offered(f"kgw topics describe --bootstrap={server} completed.ot")
    assert ["completed.other"] == offered(f"kgw consume -b {server} completed.ot")
    assert ["group"] == offered(f"kgw groups describe -b {server} completed:gr")


@pytest.mark.parametrize("command", ["topics describe", "groups describe", "transactions describe"])
def test_no_server_means_no_names(command: str) -> None:
    """A server that is not there is no error: a shell would print it into the line."""
    assert [] == offered(f"kgw {command} -b {NOBODY} x")


def test_a_shell_is_offered_no_name_that_it_would_obey(kgw: Commands, tmp_path: Path) -> None:
    """A group may be called anything; what a shell would take as more than a word is left out."""
    kgw.succeed("topics", "create", "obeyed")
    for name in ("obeyed$(reboot)", "obeyed plain", "obeyed-plain"):
        commit(kgw, name, "obeyed", tmp_path)

    assert ["obeyed-plain"] == offered(f"kgw groups describe -b {kgw.bootstrap} obeyed")


@pytest.mark.parametrize(
    ("incomplete", "expected"),
    [
        ("orders", ""),
        ("my:group", "my:"),
        ("a=b:c", "a=b:"),
        ("--set=num", ""),
        ("--set=num.partitions=", "num.partitions="),
    ],
)
def test_what_bash_leaves_of_a_word(incomplete: str, expected: str) -> None:
    """Bash replaces what is behind the last sign that splits words, and nothing before it."""
    assert expected == kept(incomplete, ":=")
    assert "" == kept(incomplete, " ")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(offline: Commands, shell: str) -> None:
    """The script calls kgw; with --json it is a document."""
    text = offline.succeed("completion", shell)

    assert f"{VARIABLE}={shell}_complete" in text
    assert {"shell": shell, "script": text} == json.loads(
        offline.succeed("completion", shell, "--json")
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_items_are_of_types_that_the_script_knows(shell: str) -> None:
    """No type of item is lost on the way."""
    completer = SHELLS[shell](main, {}, "kgw", VARIABLE)
    for kind in ("plain", "file", "dir", "beginning"):
        told = completer.format_completion(CompletionItem("x", type=kind)).split(",")[0]
        assert told.splitlines()[0] in completer.source()


def test_a_command_that_was_taught_still_takes_every_value(kgw: Commands) -> None:
    """Suggestions are no limits."""
    teach(main, ["topics", "create"])
    teach(main, ["topics", "describe"])
    kgw.succeed("topics", "create", "taught")

    assert ["taught"] == [one["name"] for one in kgw.json("topics", "describe", "taught")]


class Terminal:
    """An interactive shell on a terminal of its own."""

    def __init__(self, shell: str, home: Path) -> None:
        commands = {
            "bash": ["bash", "--norc", "--noprofile", "-i"],
            "zsh": ["zsh", "-f", "-i"],
            "fish": ["fish", "--no-config", "-i"],
        }
        self._terminal, far_end = pty.openpty()
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "TERM": "dumb",
            "LC_ALL": "C.UTF-8",
        }
        self._process = subprocess.Popen(
            # On a terminal that is theirs, shells answer to its keys.
            ["setsid", "--ctty", *commands[shell]],
            stdin=far_end,
            stdout=far_end,
            stderr=far_end,
            env=environment,
            cwd=home,
        )
        os.close(far_end)

    def run(self, keys: str) -> str:
        """Press keys, and return what is said next between < and > at the beginning of a line."""
        os.write(self._terminal, keys.encode())
        shown = ""
        while (said := re.search(r"[\r\n]<([^\r\n]*)>[\r\n]", shown)) is None:
            shown += os.read(self._terminal, 4096).decode(errors="replace")
        return said[1]

    def completed(self, line: str) -> str:
        """Return a line as it is after TAB: Ctrl-A goes to its beginning, Ctrl-E to its end."""
        return self.run(f"{line}\t\x01echo '<\x05>'\r")

    def close(self) -> None:
        """End the shell."""
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)


PREPARED = {
    "bash": """eval "$(kgw completion bash)"; echo '<ready''>'\r""",
    "zsh": (
        """autoload -Uz compinit; compinit -D; eval "$(kgw completion zsh)"; echo '<ready''>'\r"""
    ),
    "fish": """kgw completion fish | source; echo '<ready''>'\r""",
}


@pytest.fixture
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    """A shell that has read what `kgw completion` prints; the parameter is its name."""
    if shutil.which(request.param) is None:
        pytest.skip(f"there is no {request.param} here")
    terminal = Terminal(request.param, tmp_path)
    try:
        assert "ready" == terminal.run(PREPARED[request.param])
        yield terminal
    finally:
        terminal.close()


IN_BASH = pytest.mark.parametrize("terminal", ["bash"], indirect=True)
IN_OTHERS = pytest.mark.parametrize("terminal", ["zsh", "fish"], indirect=True)


@pytest.mark.slow
@IN_BASH
def test_tab_in_a_real_bash(terminal: Terminal, kgw: Commands, tmp_path: Path) -> None:
    """Words are completed where they stand, with a space behind those that are whole."""
    kgw.succeed("topics", "create", "tabbed.topic")
    commit(kgw, "tabbed:group", "tabbed.topic", tmp_path)
    (tmp_path / "a-folder").mkdir()
    server = kgw.bootstrap

    for line, expected in [
        ("kgw compl", "kgw completion "),
        ("kgw serve --set num.part", "kgw serve --set num.partitions="),
        (
            "kgw serve --set num.partitions=3 --data-d",
            "kgw serve --set num.partitions=3 --data-dir ",
        ),
        ("kgw serve --data-dir a-f", "kgw serve --data-dir a-folder/"),
        ("true; kgw topics li", "true; kgw topics list "),
        (f"kgw consume -b {server} tab", f"kgw consume -b {server} tabbed.topic "),
        (f"kgw groups lag -b {server} tabbed:g", f"kgw groups lag -b {server} tabbed:group "),
    ]:
        assert expected == terminal.completed(line)


@pytest.mark.full
@pytest.mark.slow
@IN_OTHERS
def test_tab_in_other_shells(terminal: Terminal, kgw: Commands) -> None:
    """Commands, options, settings and names of a server, in zsh and fish."""
    kgw.succeed("topics", "create", "shell.topic", "--if-not-exists")
    server = kgw.bootstrap

    for line, expected in [
        ("kgw compl", "kgw completion"),
        ("kgw topics create --repl", "kgw topics create --replication-factor"),
        ("kgw topics alter x --unset max.m", "kgw topics alter x --unset max.message.bytes"),
        (f"kgw consume -b {server} shell", f"kgw consume -b {server} shell.topic"),
    ]:
        assert expected == terminal.completed(line).rstrip()
