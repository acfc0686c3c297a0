from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

from kgw import __version__
from kgw.cli.main import COMMANDS, main
from kgw.cli.shared.errors import ExitCode
from tests import patience

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Commands


def every_command(
    command: click.Command = main, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command of the tree with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from every_command(found, (*path, name))


TREE = list(every_command())
LEAVES = [(path, command) for path, command in TREE if not isinstance(command, click.Group)]
TREE_IDS = [" ".join(path) or "kgw" for path, _ in TREE]
LEAF_IDS = [" ".join(path) for path, _ in LEAVES]


@pytest.mark.parametrize(("path", "command"), TREE, ids=TREE_IDS)
def test_every_command_and_option_has_help(
    offline: Commands, path: tuple[str, ...], command: click.Command
) -> None:
    """Nothing can be called that --help does not explain."""
    assert "Usage: kgw" in offline.succeed(*path, "--help")
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} of {' '.join(path)}"


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=LEAF_IDS)
def test_every_command_speaks_json(path: tuple[str, ...], command: click.Command) -> None:
    """Whatever a person can read, a program can."""
    assert any("--json" in parameter.opts for parameter in command.params)


def test_exit_codes_are_documented(offline: Commands) -> None:
    """The help of the root lists every exit code."""
    text = " ".join(offline.succeed("--help").split())
    for code in ExitCode:
        assert f"{code.value} {code.meaning}" in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nothing"], "no such command 'nothing' (see kgw --help)"),
        (["topics", "nothing"], "no such command 'nothing' (see kgw topics --help)"),
        (["serve", "--nothing"], "no such option '--nothing' (see kgw serve --help)"),
        (["topics", "create"], "missing argument 'NAME...' (see kgw topics create --help)"),
        (["topics", "alter", "x"], "nothing to change: give --set, --unset or --partitions"),
        (["topics", "list", "-b", "a:b"], "'b' is not a port"),
    ],
)
def test_wrong_usage_is_one_line(offline: Commands, arguments: list[str], expected: str) -> None:
    """Usage errors exit with 2 and say where the help is."""
    message = offline.fail(ExitCode.USAGE, *arguments)
    assert expected.lower() in message.lower()


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize(
    ("path", "option"),
    [
        (path, parameter.opts[0])
        for path, command in LEAVES
        for parameter in command.params
        if isinstance(parameter.type, click.types.FloatParamType)
    ],
)
def test_what_is_no_number_is_refused(
    offline: Commands, path: tuple[str, ...], option: str, number: str
) -> None:
    """Nobody can wait for such a time: it is wrong usage, and no traceback."""
    message = offline.fail(ExitCode.USAGE, *path, option, number)
    assert f"invalid value for '{option}'" in message


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["consum"], "consume"),
        (["topic", "list"], "topics"),
        (["topics", "lst"], "list"),
        (["groups", "lags", "g"], "lag"),
        (["groups", "lag", "g", "--bootstra", "x:1"], "--bootstrap"),
        (["serve", "--data-dirs", "d"], "--data-dir"),
    ],
)
def test_a_mistyped_name_gets_the_nearest_one(
    offline: Commands, arguments: list[str], near: str
) -> None:
    """Commands of each depth and options, which are refused, say what may have been meant."""
    message = offline.fail(ExitCode.USAGE, *arguments)
    assert f"{near!r}" in message.partition("Did you mean ")[2].partition("? (see kgw")[0]


@pytest.mark.parametrize("name", ["xyzzy", "", "--xyzzy"])
def test_a_name_like_no_other_gets_none(offline: Commands, name: str) -> None:
    """What resembles nothing is refused without a guess."""
    message = offline.fail(ExitCode.USAGE, name)
    assert (True, False) == ("no such" in message.lower(), "did you mean" in message.lower())


def test_no_arguments_print_the_help(offline: Commands) -> None:
    """Kgw alone, and a group alone, print what can be called."""
    result = offline.run()
    assert ExitCode.USAGE == result.exit_code
    assert all(name in result.stderr for name in COMMANDS)


def test_errors_are_json_when_results_are(offline: Commands) -> None:
    """With --json an error is an object on standard error, and nothing is on standard output."""
    result = offline.run("topics", "list", "--json")
    assert ExitCode.CANNOT_CONNECT == result.exit_code == json.loads(result.stderr)["exit_code"]
    assert "connection refused" in json.loads(result.stderr)["error"]
    assert not result.stdout


@pytest.mark.slow
def test_serving_imports_nothing_of_the_client() -> None:
    """Start-up time counts: a command pays for its own imports alone."""
    script = (
        "import sys; from kgw.cli.main import main; main.get_command(None, 'serve');"
        "print([name for name in sys.modules if name.startswith('kgw.client')"
        " or name in {'json', 'tomllib', 'difflib', 'importlib.metadata', 'dataclasses'}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "[]\n" == done.stdout


@pytest.mark.slow
def test_fetching_jars_imports_neither_the_client_nor_the_archive() -> None:
    """It needs no gateway: it speaks to a Maven repository alone."""
    script = (
        "import sys; import kgw.cli.pipeline.jars;"
        "print([name for name in sys.modules"
        " if name.startswith(('kgw.client', 'kgw.protocol', 'kgw.pipeline.archive'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "[]\n" == done.stdout


@pytest.mark.slow
def test_the_module_is_the_command() -> None:
    """Python -m kgw does what kgw does."""
    done = subprocess.run(
        [sys.executable, "-m", "kgw", "--version"], capture_output=True, text=True, check=True
    )
    assert f"kgw {__version__} (checkout)\n" == done.stdout


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error() -> None:
    """A closed pipe ends a command quietly, as with any Unix tool."""
    with subprocess.Popen(
        [sys.executable, "-m", "kgw", "config", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (ExitCode.CLOSED_PIPE, b"") == (process.wait(), process.stderr.read())


INTERRUPTED_AT = """
import os, signal, sys

interrupted = sys.argv.pop(1)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == interrupted:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from kgw.__main__ import run
run()
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["kgw.cli.main", "kgw.cli.topics.topics", "kgw.client.groups"])
def test_ctrl_c_in_the_first_moments_says_nothing(module: str) -> None:
    """While modules are imported there is nothing to tell: the signal ends the process."""
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT, module, "topics", "list"],
        capture_output=True, text=True, check=False, timeout=patience.seconds(20),
    )  # fmt: skip
    assert (-signal.SIGINT, "", "") == (ended.returncode, ended.stdout, ended.stderr)


WITHOUT_EXTRAS = """
import sys
sys.modules.update(dict.fromkeys(("numpy", "pyarrow", "pyspark", "grpc", sys.argv[1])))
from kgw.cli.main import main
main(sys.argv[2:], prog_name="kgw")
"""
INSTALL = f"{sys.executable} -m pip install 'kgw-broker[{{}}]'"
NEEDS = f"error: this command needs the package {{}}: {INSTALL}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pipeline", "archive", "--topic", "a", "--out", "b"], NEEDS.format("pyarrow", "spark")),
        (
            ["pipeline", "backfill", "--archive", ".", "--topic", "a", "--to", "b"],
            NEEDS.format("pyarrow", "spark"),
        ),
        (
            ["doctor", "--backend", "seaweedmq://127.0.0.1:1/a"],
            NEEDS.format("grpc", "seaweedmq"),
        ),
    ],
)
def test_a_command_without_its_extra_names_it(arguments: list[str], said: str) -> None:
    """One line says what to install, and the exit code is 1."""
    ended = run_without("unused", *arguments)
    assert (1, "", said) == (ended.returncode, ended.stdout, ended.stderr)


ALL_HELP = """
import sys
sys.modules.update(dict.fromkeys(%r))
from click.testing import CliRunner
import click
from kgw.cli.main import main

def walk(command, path):
    result = CliRunner().invoke(main, [*path, "--help"], prog_name="kgw")
    if result.exit_code or "\\\\b" in result.output:
        print(path, result.exit_code, result.output)
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            walk(command.get_command(ctx, name), [*path, name])

walk(main, [])
"""


@pytest.mark.slow
def test_help_needs_no_extra() -> None:
    """Every command says what it does where only kgw itself is installed, and in plain text."""
    extras = ("numpy", "pyarrow", "pyspark", "grpc", "google", "aiohttp", "asyncpg", "pymysql",
              "pandas", "deltalake", "pyiceberg", "opentelemetry")  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-c", ALL_HELP % (extras,)],
        capture_output=True, text=True, check=False, timeout=patience.seconds(30),
    )  # fmt: skip
    assert (0, "", "") == (ended.returncode, ended.stdout, ended.stderr)
    listed = run_without("unused", "pipeline", "--help").stdout
    assert "  archive   Write topics to Parquet files.\n" in listed


@pytest.mark.slow
def test_a_module_that_no_extra_brings_is_a_bug() -> None:
    """It has a traceback, as every bug."""
    ended = run_without("kgw.cli.pipeline.lag", "pipeline", "lag")
    assert (1, True) == (ended.returncode, ended.stderr.startswith("Traceback"))


def run_without(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command where neither the packages of extras nor this module can be imported."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, module, *arguments],
        capture_output=True, text=True, check=False, timeout=patience.seconds(20),
    )  # fmt: skip
