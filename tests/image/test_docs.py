"""The commands of docs/containers.md, as far as kgw and the image have a say in them."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

import pytest

from kgw.cli.serve import serve
from kgw.config.load import load_config
from tests.cli.test_main import LEAVES
from tests.image import smoke
from tests.image.building import ROOT
from tests.image.dockerfile import parse_stages

PAGE = (ROOT / "docs" / "containers.md").read_text()
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
IMAGES = frozenset({"kgw", "debian:bookworm-slim"})
WITH_VALUE = frozenset(
    {
        *("--cap-drop", "--entrypoint", "--env", "--memory", "--name", "--network"),
        *("--pids-limit", "--publish", "--restart", "--security-opt", "--stop-timeout"),
        "--volume",
    }
)
"""Options of `docker run` that are used here, with a value; and those without one."""
FLAGS = frozenset({"--detach", "--read-only", "--rm"})
HARDENED = {
    *("--read-only", "--cap-drop ALL", "--security-opt no-new-privileges", "--memory 256m"),
}


class Run(NamedTuple):
    """One `docker run`."""

    options: tuple[str, ...]
    environment: dict[str, str]
    entrypoint: str
    image: str
    arguments: tuple[str, ...]


def read_run(words: list[str]) -> Run:
    """Return what a command line means. Raises ValueError for an option that is not known here."""
    options, environment, entrypoint = [], {}, ""
    words = words[2:]
    while words and words[0].startswith("--"):
        name = words.pop(0)
        if name in FLAGS:
            options.append(name)
            continue
        if name not in WITH_VALUE:
            raise ValueError(f"docker run has no option {name} here")
        value = words.pop(0)
        options.append(f"{name} {value}")
        if name == "--env":
            variable, _, text = value.partition("=")
            environment[variable] = text
        elif name == "--entrypoint":
            entrypoint = value
    return Run(tuple(options), environment, entrypoint, words[0], tuple(words[1:]))


COMMANDS = [
    shlex.split(line)
    for block in BLOCK.findall(PAGE)
    for line in block.replace("\\\n", " ").splitlines()
]
RUNS = [read_run(words) for words in COMMANDS if words[:2] == ["docker", "run"]]
SERVING = [one for one in RUNS if one.image == "kgw" and not one.entrypoint]


def test_the_page_has_commands() -> None:
    """Two of them serve, one runs another command of kgw, one makes a copy; two are run inside."""
    assert 3 == len(OTHERS)
    assert [2, 4] == [len(SERVING), len(RUNS)]
    assert set() == {one.image for one in RUNS} - IMAGES


@pytest.mark.parametrize("run", SERVING, ids=range(len(SERVING)))
def test_serving(run: Run) -> None:
    """They are hardened, and `kgw serve` takes their arguments and variables."""
    assert set() == HARDENED - set(run.options)
    assert "--volume kgw-data:/var/lib/kgw" in run.options
    parsed = serve.make_context("serve", list(run.arguments)).params
    stage = parse_stages((ROOT / "Dockerfile").read_text())[-1]
    given = {**stage.environment, **run.environment}
    config = load_config(environ={k: v for k, v in given.items() if k.startswith("KGW_")})
    assert () == config.warnings
    ports = {listener.port for listener in config.bound_listeners}
    for option in run.options:
        if option.startswith("--publish "):
            host, outside, inside = option.split()[1].split(":")
            assert "127.0.0.1" == host
            assert int(inside) in ports
            advertised = {f"{one.host}:{one.port}" for one in config.advertised.values()}
            assert f"localhost:{outside}" in {*parsed["advertise"], *advertised}


def test_two_listeners_are_those_that_are_tried() -> None:
    """K1 runs the image with the variables that the page has."""
    assert smoke.TWO_LISTENERS == SERVING[1].environment


OTHERS = [list(run.arguments) for run in RUNS if run.entrypoint == "kgw"] + [
    words[4:] for words in COMMANDS if words[:4] == ["docker", "exec", "kgw", "kgw"]
]


@pytest.mark.parametrize("words", OTHERS, ids=" ".join)
def test_other_commands(words: list[str]) -> None:
    """They are commands of kgw, with arguments that it takes."""
    (path, command) = next(one for one in LEAVES if words[: len(one[0])] == list(one[0]))
    command.make_context(path[-1], words[len(path) :])


def test_options_of_the_script() -> None:
    """Those of `scripts/image` are told by its help."""
    options = {words[1] for words in COMMANDS if words[0] == "scripts/image"}
    text = (ROOT / "tests" / "image" / "__main__.py").read_text()
    assert options <= set(re.findall(r'"(--[a-z]+)"', text))
