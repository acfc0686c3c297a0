"""A Dockerfile as instructions and stages: as much of the language as the project's own uses."""

from __future__ import annotations

import json
from typing import NamedTuple


class Instruction(NamedTuple):
    """One instruction; `words` are the rest of its line, lines that go on joined."""

    keyword: str
    words: str

    @property
    def program(self) -> tuple[str, ...] | None:
        """The program form: a JSON list behind the options; None for what a shell would run."""
        text = self.words.partition("CMD ")[2] if self.keyword == "HEALTHCHECK" else self.words
        try:
            found = json.loads(text)
        except ValueError:
            return None
        return tuple(found) if isinstance(found, list) else None


class Stage(NamedTuple):
    """From one FROM to the next."""

    base: str
    name: str
    instructions: tuple[Instruction, ...]

    def of(self, keyword: str) -> list[Instruction]:
        """Return its instructions of a kind, in their order."""
        return [one for one in self.instructions if one.keyword == keyword]

    @property
    def environment(self) -> dict[str, str]:
        """What its ENV set, in the form NAME=VALUE without spaces."""
        pairs = " ".join(one.words for one in self.of("ENV")).split()
        return dict(pair.split("=", 1) for pair in pairs)


def parse_instructions(text: str) -> list[Instruction]:
    """Return the instructions of a Dockerfile. Raises ValueError where a line is none."""
    instructions = []
    line = ""
    for part in text.splitlines():
        if part.lstrip().startswith("#") or not (line or part.strip()):
            continue
        if part.endswith("\\"):
            line += part[:-1].strip() + " "
            continue
        keyword, _, words = (line + part.strip()).partition(" ")
        line = ""
        if not keyword.isalpha() or not words:
            raise ValueError(f"no instruction: {part}")
        instructions.append(Instruction(keyword.upper(), words.strip()))
    if line:
        raise ValueError("the last line goes on")
    return instructions


def parse_stages(text: str) -> list[Stage]:
    """Return the stages; what stands before the first FROM is of none. Raises ValueError."""
    stages: list[Stage] = []
    for instruction in parse_instructions(text):
        if instruction.keyword == "FROM":
            base, _, name = instruction.words.partition(" AS ")
            stages.append(Stage(base, name, ()))
        elif stages:
            last = stages[-1]
            stages[-1] = last._replace(instructions=(*last.instructions, instruction))
    if not stages:
        raise ValueError("no stage begins")
    return stages
