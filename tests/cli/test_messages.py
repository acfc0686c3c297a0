"""Small mistakes, and what is said of each."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click
import pytest

from kgw.cli.main import main
from kgw.cli.shared.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Commands


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://h:9092", "'http://h:9092' begins with http://; expected HOST:PORT, as 'h:9092'"),
        ("PLAINTEXT://h:9092", "begins with PLAINTEXT://"),
        ("", "it cannot be empty"),
        (" ", "'' names no host"),
        ("h:9092,,i", "'' names no host"),
        (":9092", "':9092' names no host"),
        ("h:0", "nothing can be connected to at port 0"),
        ("h/x", "'h/x' is not a host name"),
    ],
)
def test_servers_that_cannot_be_meant(offline: Commands, text: str, said: str) -> None:
    """An address is looked at before anything is asked of it."""
    assert said in offline.fail(ExitCode.USAGE, "topics", "list", "-b", text)
    assert said in offline.fail(ExitCode.USAGE, "doctor", text)


@pytest.mark.parametrize(
    ("text", "said"),
    [(":9644", "names no host"), ("h:0", "port 0")],
)
def test_admin_listeners_that_cannot_be_meant(offline: Commands, text: str, said: str) -> None:
    """The same of the server's other side."""
    assert said in offline.fail(ExitCode.USAGE, "top", "--once", "--admin", text)


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("KGW_BOOSTRAP", "KGW_BOOTSTRAP"),
        ("KGW_BOOTSTRAP_SERVERS", "KGW_BOOTSTRAP"),
        ("KGW_BROKERS", "KGW_BOOTSTRAP"),
        ("KGW_ADMIM", "KGW_ADMIN"),
        ("KGW_ADMIN_TOKENFILE", "KGW_ADMIN_TOKEN_FILE"),
        ("KGW_CONFG", "KGW_CONFIG"),
    ],
)
@pytest.mark.parametrize(
    "words", [("topics", "list"), ("doctor",), ("groups", "lag", "g"), ("produce", "t"), ("top",)]
)
def test_a_misspelt_variable_is_told(
    offline: Commands, monkeypatch: pytest.MonkeyPatch, variable: str, meant: str, words: list[str]
) -> None:
    """By every command that asks a server: it would ask another one than was meant. Not by help."""
    monkeypatch.setenv(variable, "kgw.example:9092")
    said = offline.fail(ExitCode.USAGE, *words)
    assert f"environment variable {variable} is not known; did you mean {meant}?" == said
    assert "Usage" in offline.succeed(words[0], "--help")


def test_variables_of_servers_and_of_others_are_left_alone(
    kgw: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server's settings, Kubernetes' links, and what has no name near ours."""
    for variable in ("KGW_NUM_PARTITIONS", "KGW_PORT", "KGW_ADMIN_LISTENERS", "KGW_RECORDS"):
        monkeypatch.setenv(variable, "1")
    kgw.succeed("topics", "list")


def test_states_of_groups_are_known(kgw: Commands) -> None:
    """A state that no group can have is no empty list; its case does not count."""
    assert "'Foo' is not one of" in kgw.fail(ExitCode.USAGE, "groups", "list", "--state", "Foo")
    assert [] == kgw.json("groups", "list", "--state", "stable")


@pytest.mark.parametrize("text", ["yesterday", "@soon", "2026-13-01", "@99999999999999999999"])
def test_times_are_named_as_they_are_written(offline: Commands, text: str) -> None:
    """Python's words for it are nobody's."""
    arguments = ("groups", "reset-offsets", "g", "-t", "t", "--to-datetime", text)
    message = offline.fail(ExitCode.USAGE, *arguments)
    assert "a timestamp can say" in message or (
        f"{text!r} is no time like 2026-01-31T12:00 or @1769860800000" in message
    )


def test_records_beyond_the_end_are_refused_with_the_range(kgw: Commands) -> None:
    """Where a partition begins and ends is part of why."""
    kgw.succeed("produce", "short", data="a\nb\nc\n")
    result = kgw.run("topics", "delete-records", "short", "--before", "99", "--yes")
    assert ExitCode.FAILED == result.exit_code
    assert "short-0: OFFSET_OUT_OF_RANGE: it goes from 0 to 3\n" in result.stderr


def test_offsets_that_there_are_not_are_told(kgw: Commands, tmp_path: Path) -> None:
    """The nearest offset is taken, as Kafka's tool does, and not without a word."""
    kgw.succeed("produce", "clamped", data="a\nb\nc\n")
    reset = ("groups", "reset-offsets", "movers", "-t", "clamped")
    undo = ("--execute", "--undo-file", str(tmp_path / "undo"))
    result = kgw.run(*reset, "--to-offset", "99", *undo)
    assert "clamped partition 0 has no offset 99: 3 is the nearest.\n" in result.stderr
    told = {
        " ".join(target): [(one["asked"], one["after"]) for one in found["offsets"]]
        for target in (("--to-offset", "3"), ("--shift-by", "7"), ("--shift-by", "-7"))
        for found in (kgw.json(*reset, *target),)
    }
    expected = {"--to-offset 3": [(None, 3)], "--shift-by 7": [(10, 3)], "--shift-by -7": [(-4, 0)]}
    assert expected == told


_Named = tuple[str, click.Context, click.Parameter]


def named() -> Iterator[_Named]:
    """Yield every argument and option that names a topic, a group or another thing."""

    def walk(command: click.Command, path: str) -> Iterator[_Named]:
        ctx = click.Context(command, info_name=path)
        if isinstance(command, click.Group):
            for name in command.list_commands(ctx):
                below = command.get_command(ctx, name)
                assert below is not None
                yield from walk(below, f"{path} {name}")
        for param in command.params:
            options = {"--topic", "--group", "--ledger-topic", "--protect-group", "--bootstrap"}
            is_option = param.type is click.STRING and options & {*param.opts}
            if isinstance(param, click.Argument) or is_option:
                yield f"{path} {param.name}", ctx, param

    yield from walk(main, "kgw")


def test_no_name_is_empty() -> None:
    """A script whose variable is not set is told that, by every command, before anything is asked.

    A command group that is walked twice has its names looked at once.
    """
    list(named())
    accepted = []
    for where, ctx, param in named():
        with suppress(click.BadParameter):
            param.process_value(ctx, ("",) if param.multiple or param.nargs != 1 else "")
            accepted.append(where)
    assert [] == accepted


def test_an_empty_name_is_refused_in_one_line(offline: Commands) -> None:
    """The line says which argument, and no server is asked."""
    message = offline.fail(ExitCode.USAGE, "produce", "", data="a")
    assert "invalid value for 'TOPIC': it cannot be empty (see kgw produce --help)" == message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("orders,0,1\n\norders,1\n", ": line 3 is not TOPIC,PARTITION,OFFSET (see kgw groups"),
        ("orders,0,first\n", ": line 1 is not TOPIC,PARTITION,OFFSET (see kgw groups"),
        ('{"offsets": [{"topic": "orders"}]}', ": it is JSON, and not what --undo-file has: "),
    ],
)
def test_files_of_offsets_are_told_where_they_are_wrong(
    offline: Commands, tmp_path: Path, content: str, said: str
) -> None:
    """By line, or by what is expected: what Python makes of it is nobody's."""
    file = tmp_path / "offsets"
    file.write_text(content)
    arguments = ("groups", "reset-offsets", "readers", "--from-file", str(file))
    assert f"{file}{said}" in offline.fail(ExitCode.USAGE, *arguments)


def test_hints_are_not_said_twice(offline: Commands) -> None:
    """What click suggests, and where there is help, are two things."""
    message = offline.fail(ExitCode.USAGE, "topix")
    assert (
        "no such command 'topix'. Did you mean one of: 'top', 'topics'? (see kgw --help)" == message
    )
    assert 1 == offline.fail(ExitCode.USAGE, "topics", "list", "--boot").count("--help)")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("topics --list", "kgw topics list"),
        ("consume --topic orders", "kgw consume TOPIC"),
        ("produce --topic orders", "kgw produce TOPIC"),
        ("consume orders --from-beginning", "--from earliest"),
        ("topics create orders --config retention.ms=1", "--set"),
        ("topics create orders --partition 1", "--partitions"),
    ],
)
def test_options_of_kafkas_tools_lead_to_ours(offline: Commands, words: str, meant: str) -> None:
    """Who writes what Kafka's own tools take is told what it is called here."""
    error = offline.fail(ExitCode.USAGE, *words.split())
    assert f"Did you mean {meant!r}? (see kgw" in error
