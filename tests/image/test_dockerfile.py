"""The project's Dockerfile, and the reading of any."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

import kgw
from kgw.admin.probe import DEFAULT_LISTENER
from kgw.config.load import environment_name, load_config
from tests.image.building import INPUTS, ROOT
from tests.image.dockerfile import Instruction, parse_instructions, parse_stages
from tests.image.rules import SHELLS

if TYPE_CHECKING:
    from tests.image.dockerfile import Stage

TEXT = (ROOT / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def stages() -> list[Stage]:
    """The stages of the project's Dockerfile."""
    return parse_stages(TEXT)


class TestReading:
    def test_instructions(self) -> None:
        """Lines that go on are joined, and comments are left out, also between them."""
        text = '# first\nRUN ["a", \\\n# between\n    "b"]\n\nuser 1:1\n'
        expected = [Instruction("RUN", '["a", "b"]'), Instruction("USER", "1:1")]
        assert expected == parse_instructions(text)

    @pytest.mark.parametrize("text", ["RUN\n", "1 2\n", "RUN a \\\n"])
    def test_no_instruction(self, text: str) -> None:
        """A line that is none is an error, as is an end in the middle of one."""
        with pytest.raises(ValueError, match=r"no instruction|goes on"):
            parse_instructions(text)

    def test_program_form(self) -> None:
        """A JSON list is a program, also behind a health check's options; other words are not."""
        health = Instruction("HEALTHCHECK", '--interval=1s CMD ["a", "b"]')
        assert ("a", "b") == health.program
        assert ("a",) == Instruction("ENTRYPOINT", '["a"]').program
        assert None is Instruction("CMD", "a b").program

    def test_no_stage(self) -> None:
        """A text without FROM has no stage."""
        with pytest.raises(ValueError, match="no stage begins"):
            parse_stages("ARG A=1\n")


class TestTheProjects:
    def test_stages(self, stages: list[Stage]) -> None:
        """It builds in one stage, and keeps nothing of it but what is copied."""
        assert ["build", ""] == [stage.name for stage in stages]
        assert ["${PYTHON_IMAGE}", "scratch"] == [stage.base for stage in stages]
        assert [] == stages[1].of("RUN")
        assert all(one.words.startswith("--from=build ") for one in stages[1].of("COPY"))

    def test_no_shell(self, stages: list[Stage]) -> None:
        """Everything that is run is in the program form, and none of it is a shell."""
        run = [*stages[0].of("RUN"), *stages[1].of("ENTRYPOINT"), *stages[1].of("HEALTHCHECK")]
        programs = [one.program for one in run]
        assert None not in programs
        assert set() == SHELLS & {one[0].rsplit("/", 1)[-1] for one in programs if one}

    def test_last_stage(self, stages: list[Stage]) -> None:
        """It runs `kgw serve` as 10001, is stopped with SIGTERM, and keeps its data in a volume."""
        last = stages[1]
        program = ("kgw", "serve", "--data-dir", "/var/lib/kgw")
        assert [program] == [one.program for one in last.of("ENTRYPOINT")]
        assert [] == last.of("CMD")
        assert ["10001:10001"] == [one.words for one in last.of("USER")]
        assert ["SIGTERM"] == [one.words for one in last.of("STOPSIGNAL")]
        assert ['["/var/lib/kgw"]'] == [one.words for one in last.of("VOLUME")]
        assert ["9092"] == [one.words for one in last.of("EXPOSE")]

    def test_environment(self, stages: list[Stage]) -> None:
        """Its variables are settings that kgw takes, with the values that its other lines name."""
        given = {
            name: value for name, value in stages[1].environment.items() if name.startswith("KGW_")
        }
        config = load_config(environ=given)
        assert () == config.warnings
        assert [("0.0.0.0", 9092)] == [(one.host, one.port) for one in config.bound_listeners]
        assert DEFAULT_LISTENER == given[environment_name("kgw.admin.listeners")]

    def test_health_check(self, stages: list[Stage]) -> None:
        """It asks the admin side, and nothing that is not in the image."""
        (health,) = stages[1].of("HEALTHCHECK")
        assert ("python", "-m", "kgw.admin.probe") == health.program

    def test_version(self, stages: list[Stage]) -> None:
        """The version that its label says by itself is kgw's."""
        versions = [one.words for one in stages[1].of("ARG") if "VERSION" in one.words]
        assert [f"KGW_VERSION={kgw.__version__}"] == versions

    def test_commit(self, stages: list[Stage]) -> None:
        """The build knows the commit, and the image tells it."""
        assert "${KGW_COMMIT}" == stages[0].environment["KGW_COMMIT"]
        (labels,) = stages[1].of("LABEL")
        assert 'org.opencontainers.image.revision="${KGW_COMMIT}"' in labels.words

    def test_base(self) -> None:
        """The Python of the base image is one that kgw is for, on a Debian that is named."""
        (base,) = [one for one in parse_instructions(TEXT) if one.words.startswith("PYTHON_IMAGE=")]
        assert "PYTHON_IMAGE=docker.io/library/python:3.11-slim-bookworm" == base.words
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert ">=3.11" == project["requires-python"]

    def test_context(self, stages: list[Stage]) -> None:
        """What is copied is what .dockerignore lets through, and what the stamp is made of."""
        copied = {name for one in stages[0].of("COPY") for name in one.words.split()[:-1]}
        lines = (ROOT / ".dockerignore").read_text().splitlines()
        assert "*" in lines
        assert copied == {line[1:] for line in lines if line.startswith("!")}
        assert copied | {"Dockerfile", ".dockerignore"} == set(INPUTS)

    def test_what_is_installed(self) -> None:
        """What runs has the versions of the environment that builds, and nothing that builds."""
        run, image = (
            {
                line.split(" ", 1)[0]
                for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
                if "==" in line
            }
            for name in ("run", "image")
        )
        assert set() == image - run
        tools = (ROOT / "requirements" / "build.in").read_text().splitlines()
        names = {line.split("<")[0] for line in tools if not line.startswith("#")}
        assert set() == names & {line.split("==")[0] for line in image}
