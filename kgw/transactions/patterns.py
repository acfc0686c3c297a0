"""Regular expressions that clients send: a subset of RE2's syntax, matched in linear time.

With `re`, a pattern of twenty characters can block the process for years, which is why Kafka uses
RE2 (KIP-1152). Here a text is read once, and all states that the pattern can be in are followed at
the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Generator

MAX_CHARACTERS: Final = 1_000
MAX_DEPTH: Final = 50
MAX_REPEAT: Final = 1_000
MAX_STEPS: Final = 1_000
"""The limit on the steps of a compiled pattern, and so on the states that are followed."""
_MAX_KNOWN: Final = 10_000
_CHARACTERS_PER_UNIT: Final = 32

_LAST = chr(0x10FFFF)
_CLASSES = {
    "d": (("0", "9"),),
    "s": (("\t", "\n"), ("\f", "\r"), (" ", " ")),
    "w": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")),
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}

_Ranges: TypeAlias = "tuple[tuple[str, str], ...]"


class PatternError(ValueError):
    """A pattern has syntax that is not supported, or is too large."""


class _Characters(NamedTuple):
    """Matches one character in the ranges; if negated, one character outside them."""

    ranges: _Ranges
    is_negated: bool = False

    def has(self, character: str) -> bool:
        return self.is_negated != any(low <= character <= high for low, high in self.ranges)


class _Edge(NamedTuple):
    """Matches at the beginning of the text, or at its end."""

    is_begin: bool


class _Sequence(NamedTuple):
    parts: list[_Node]


class _Choice(NamedTuple):
    parts: list[_Node]


class _Repeat(NamedTuple):
    part: _Node
    least: int
    most: int | None


_Node: TypeAlias = "_Characters | _Edge | _Sequence | _Choice | _Repeat"


class _Split(NamedTuple):
    """Continues at each of these steps at the same time."""

    to: list[int]


_MATCH: Final = None
_Step: TypeAlias = "_Characters | _Edge | _Split | None"
_States: TypeAlias = frozenset[int]


class Pattern:
    """A compiled pattern, which has to match whole texts."""

    def __init__(self, pattern: str) -> None:
        """Raises PatternError."""
        if len(pattern) > MAX_CHARACTERS:
            raise PatternError(f"a pattern has {MAX_CHARACTERS} characters at most")
        self._steps = _Program(_Parser(pattern).parse()).steps
        self._begin = self._spread({0}, is_begin=True)
        self._known: dict[tuple[_States, str], _States] = {}

    def matches(self, text: str) -> Generator[int, None, bool]:
        """Return whether the whole text matches. Yields the work of each step."""
        states = self._begin
        for character in text:
            after = self._known.get((states, character))
            if after is None:
                after = self._after(states, character)
                yield 1 + len(states)
            states = after
            if not states:
                return False
        yield 1 + len(text) // _CHARACTERS_PER_UNIT
        is_begin = not text
        ends = self._spread(states, is_begin=is_begin, is_end=True)
        return any(self._steps[one] is _MATCH for one in ends)

    def _after(self, states: _States, character: str) -> _States:
        steps = self._steps
        reached = set()
        for one in states:
            step = steps[one]
            if isinstance(step, _Characters) and step.has(character):
                reached.add(one + 1)
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        after = self._known[states, character] = self._spread(reached)
        return after

    def _spread(
        self, states: set[int] | _States, *, is_begin: bool = False, is_end: bool = False
    ) -> _States:
        """Return the states that are reachable without reading a character, except splits."""
        found: set[int] = set()
        seen: set[int] = set()
        left = list(states)
        while left:
            one = left.pop()
            if one in seen:
                continue
            seen.add(one)
            step = self._steps[one]
            if isinstance(step, _Split):
                left += step.to
                continue
            found.add(one)
            if isinstance(step, _Edge) and (is_begin if step.is_begin else is_end):
                left.append(one + 1)
        return frozenset(found)


class _Parser:
    """Parses a pattern to a tree of nodes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        """Raises PatternError."""
        node = self._choice()
        if self._at < len(self._text):
            raise self._error("nothing is open here")
        return node

    def _error(self, why: str) -> PatternError:
        return PatternError(f"at character {self._at}: {why}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise self._error("the pattern ends too early")
        self._at += 1
        return character

    def _accept(self, wanted: str) -> bool:
        if not self._text.startswith(wanted, self._at):
            return False
        self._at += len(wanted)
        return True

    def _choice(self) -> _Node:
        parts = [self._sequence()]
        while self._accept("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _Choice(parts)

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._peek() not in {"", "|", ")"}:
            parts.append(self._repeated())
        return _Sequence(parts)

    def _repeated(self) -> _Node:
        node = self._one()
        is_repeated = False
        while (bounds := self._bounds()) is not None:
            if is_repeated:
                raise self._error("a repetition is repeated")
            node, is_repeated = _Repeat(node, *bounds), True
            self._accept("?")  # a lazy repetition matches the same whole texts
        return node

    def _bounds(self) -> tuple[int, int | None] | None:
        """Read a repetition. Return its minimum and maximum, or None if there is no repetition.

        The maximum is None if it is unlimited. Raises PatternError.
        """
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(sign):
                return bounds
        end = self._text.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        if not _is_number(least) or not (_is_number(most) or not most):
            return None  # a brace that is an ordinary character
        low = int(least)
        high = (int(most) if most else None) if comma else low
        if low > MAX_REPEAT or (high is not None and not low <= high <= MAX_REPEAT):
            raise self._error(f"{MAX_REPEAT} repetitions at most, the lower number first")
        self._at = end + 1
        return low, high

    def _one(self) -> _Node:
        character = self._take()
        if character == "(":
            return self._group()
        if character == "[":
            return self._set()
        if character == ".":
            return _Characters((("\n", "\n"),), is_negated=True)
        if character in "^$":
            return _Edge(character == "^")
        if character in "*+?":
            raise self._error("there is nothing to repeat")
        if character == "\\":
            return self._escaped()
        return _Characters(((character, character),))

    def _group(self) -> _Node:
        if self._accept("?") and not self._accept(":"):
            raise self._error("only (...) and (?:...) are understood")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"{MAX_DEPTH} groups inside each other at most")
        node = self._choice()
        if not self._accept(")"):
            raise self._error("a group has no end")
        self._depth -= 1
        return node

    def _escaped(self) -> _Node:
        character = self._take()
        if character in "AzZ":
            raise self._error("a pattern is compared with whole texts as it is")
        if character.lower() in _CLASSES:
            return _Characters(_CLASSES[character.lower()], is_negated=character.isupper())
        plain = self._plain(character)
        return _Characters(((plain, plain),))

    def _plain(self, character: str) -> str:
        """Return the character that an escape stands for."""
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character.isascii() and character.isalnum():
            raise self._error(f"\\{character} is not understood")
        return character

    def _set(self) -> _Characters:
        is_negated = self._accept("^")
        ranges: list[tuple[str, str]] = []
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            low = self._take()
            if low == "[" and self._peek() == ":":
                raise self._error("named classes are not understood")
            if low == "\\":
                low = self._take()
                if low.lower() in _CLASSES:
                    known = _CLASSES[low.lower()]
                    ranges += _others(known) if low.isupper() else known
                    continue
                low = self._plain(low)
            high = low
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in {"]", ""}:
                self._at += 1
                high = self._take()
                if high == "\\":
                    high = self._plain(self._take())
            if high < low:
                raise self._error("a range runs backwards")
            ranges.append((low, high))
        self._at += 1
        return _Characters(tuple(ranges), is_negated)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(MAX_REPEAT))


def _others(ranges: _Ranges) -> list[tuple[str, str]]:
    """Return the ranges of all characters outside of these ranges, which are sorted."""
    others, low = [], "\0"
    for first, last in ranges:
        if low < first:
            others.append((low, chr(ord(first) - 1)))
        low = chr(ord(last) + 1)
    return [*others, (low, _LAST)]


class _Program:
    """Compiles the tree of a pattern to steps. Each step but a split leads to the next one."""

    def __init__(self, node: _Node) -> None:
        self.steps: list[_Step] = []
        self._visits = 0
        self._add(node)
        self.steps.append(_MATCH)

    def _put(self, step: _Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def _add(self, node: _Node) -> None:
        # The number of visits is limited, too: an empty group adds no steps, however often it is
        # repeated.
        self._visits += 1
        if max(self._visits, len(self.steps)) > MAX_STEPS:
            raise PatternError("the pattern is too large with its repetitions")
        if isinstance(node, _Sequence):
            for part in node.parts:
                self._add(part)
        elif isinstance(node, _Choice):
            self._add_choice(node)
        elif isinstance(node, _Repeat):
            self._add_repeat(node)
        else:
            self._put(node)

    def _add_choice(self, node: _Choice) -> None:
        split = _Split([])
        self._put(split)
        ends = []
        for part in node.parts:
            split.to.append(len(self.steps))
            self._add(part)
            end = _Split([])
            self._put(end)
            ends.append(end)
        for end in ends:
            end.to.append(len(self.steps))

    def _add_repeat(self, node: _Repeat) -> None:
        for _ in range(node.least):
            self._add(node.part)
        if node.most is None:
            loop = _Split([])
            at = self._put(loop)
            loop.to.append(len(self.steps))
            self._add(node.part)
            self._put(_Split([at]))
            loop.to.append(len(self.steps))
            return
        skips = []
        for _ in range(node.most - node.least):
            skip = _Split([])
            self._put(skip)
            skip.to.append(len(self.steps))
            skips.append(skip)
            self._add(node.part)
        for skip in skips:
            skip.to.append(len(self.steps))
