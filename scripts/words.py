"""Finds sentences and names in `kgw/` that a reader who is new to the code must read twice."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent

_DIRECTIVE = re.compile(r"#:?\s*(noqa|type:|pragma|ruff:|mypy:|fmt:|!|nosec|pylint)")
_CODE = re.compile(r"`[^`]*`")
_END = re.compile(r"(?:(?<=[.!?;:])(?<!\be\.g\.)(?<!\bi\.e\.)[)\"']?\s+)|\n[ \t]*\n\s*|\n\s*[-*] ")


_ASKING = frozenset(
    "ask asked asks check checks choose chosen decide decided decides describe describes explain"
    " explains find finds know knowing known knows learn matter matters notice regardless report"
    " reports said say saying says see seen sees show shows tell telling tells".split()
)
"""Verbs that a question follows: "says what failed" leaves nothing for its reader to guess."""
_BETWEEN = frozenset("about and by exactly for in just of on or to with".split())
"""Words that may stand between such a verb and its question."""

_NOUN = r"\b(?:a|an|another|each|every|further|in|its|next|of|one|other|own|such|that|the|their|this|whose)"


class Rule(NamedTuple):
    """A way in which a clause makes its reader guess."""

    name: str
    why: str
    pattern: re.Pattern[str]
    only: str = ""
    """The kind of text that it holds for, at whose beginning; empty for any clause."""


def _rule(name: str, why: str, *patterns: str, only: str = "") -> Rule:
    return Rule(name, why, re.compile("|".join(patterns)), only)


RULES = (
    _rule(
        "order",
        "the sentence begins with what belongs to its end, or with a denial: subject first",
        r"^[Oo]f (?!course)",
        r"^(Nobody|Nor|Neither)\b",
        r"^Nothing (is|has)\b.* (any more|yet)$",
        r"^[Tt]he (later|earlier|more|less|longer|larger|fewer)\b.* the \w+er\b",
        r"^(Beside|From|With|By|In|Of) (which|whom|whose|what)\b",
        r"^(Lost|Found|Given|Left|Taken|Written), ",
        r"^(Which|Why|How|Whether)\b[^,]*, [^,]*\b(tells?|says?|shows?|is told|decides?)$",
        r"\bexactly (if|when|where)\b",
    ),
    _rule(
        "where",
        "the clause begins with 'where': write 'if', or name the offset, file or node",
        r"^Where\b",
    ),
    _rule(
        "pronoun",
        "a pronoun stands where the noun belongs: name the things",
        r"^(Those|One|those|one|Everything|everything) (that|who|whose|which|of|with|behind|without)\b",
        r"\ball (that|there)\b",
        r"\b(for|to|by|of|from) (those|one|ones) (that|who|whose)\b",
        r"\bwhere all is\b",
    ),
    _rule(
        "term",
        "an everyday word has a meaning of ours: use Kafka's or Python's term",
        r"(?<!\bin )(?<!take )(?<!takes )(?<!in the )(?<!in its )(?<!in their )\bplaces?\b",
        r"\btold\b(?! (otherwise|that|to|not to|which|where|how)\b)",
        r"\bwanted\b",
        _NOUN + r" (?<!\bin )turns?\b",
        r"\b[Pp]ieces?\b",
        _NOUN + r" (?<!sign of )(life\b|lives\b(?! (on|in)\b))",
        _NOUN + r" notes?\b",
        r"\bnoted\b",
        _NOUN + r" shares?\b(?! groups?\b)",
        r"\b(asides?|strangers?|offenders?|[Hh]ow far)\b",
        r"\b(?<!-)(stands?|stood|standing)\b(?! (by|for|in for|still|out)\b)",
    ),
    _rule(
        "whether",
        "a function's docstring begins with a verb: 'Return whether ...'",
        r"^Whether\b",
        only="function",
    ),
)
_NAMED = frozenset(
    "a an the each every another no its their this some such to else kind time"
    " batches clients commands groups partitions people producers readers requests topics"
    " transactions".split()
)
"""Words that, behind "what", begin a noun: "what the file holds" can be read once."""
_AFTER_PREPOSITION = frozenset("of by to from for and or but that than as with".split())


def lacks_noun(clause: str) -> bool:
    """Return whether "what" or "who" stands for a noun, and asks nothing."""
    words = re.findall(r"[\w'-]+|,", clause)
    for index, word in enumerate(words):
        if word.lower() not in {"what", "whatever", "who", "whoever"}:
            continue
        before = [one.lower() for one in words[:index]]
        while before and before[-1] in _BETWEEN:
            before.pop()
        if before and before[-1] in _ASKING:
            continue
        if word.lower() == "who" and index and words[index - 1] not in _AFTER_PREPOSITION:
            continue
        if words[index + 1 : index + 2] and words[index + 1] in _NAMED:
            continue
        return True
    return False


def judge(clause: Clause) -> list[str]:
    """Return the names of the rules that a clause breaks."""
    plain = _CODE.sub("`x`", clause.text)
    found = ["what"] if lacks_noun(plain) else []
    return found + [
        one.name for one in RULES if one.only in {"", clause.kind} and one.pattern.search(plain)
    ]


class Text(NamedTuple):
    """A docstring, or comment lines that follow each other."""

    kind: str
    """module, class, function, property, attribute or comment."""
    line: int
    text: str


class Clause(NamedTuple):
    """A sentence, or a part of one that `;` or `:` divides."""

    kind: str
    """Of its text; "start of" a function where it is the first clause."""
    line: int
    text: str


def read_texts(source: str) -> Iterator[Text]:
    """Yield the docstrings and comments of a module. Raises SyntaxError."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for index, one in enumerate(node.body):
            match one:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield Text(_kind(node) if index == 0 else "attribute", one.lineno, text)
                case _:
                    pass
    yield from _read_comments(source)


def _kind(node: ast.AST) -> str:
    match node:
        case ast.Module():
            return "module"
        case ast.ClassDef():
            return "class"
        case ast.FunctionDef(decorator_list=decorators):
            names = {ast.unparse(one).rpartition(".")[2] for one in decorators}
            return "property" if names & {"property", "cached_property"} else "function"
        case _:
            return "function"


def _read_comments(source: str) -> Iterator[Text]:
    """Yield comments; lines that hold nothing else and follow each other are one text."""
    text, first, last = "", 0, -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _DIRECTIVE.match(token.string):
            continue
        line, column = token.start
        words = token.string.lstrip("#:").strip()
        if line == last + 1 and not token.line[:column].strip():
            text += f"\n{words}"
        else:
            if text:
                yield Text("comment", first, text)
            text, first = words, line
        last = line
    if text:
        yield Text("comment", first, text)


def split(text: Text) -> Iterator[Clause]:
    """Yield the clauses of a text, with the line of each; examples of code are left out."""
    masked = _CODE.sub(lambda code: re.sub(r"[^`\n]", "x", code[0]), text.text)
    start = 0
    for end in (*(one.span() for one in _END.finditer(masked)), (len(masked), 0)):
        raw = text.text[start : end[0]]
        words = " ".join(raw.split()).strip("-").strip().rstrip(".;:")
        if re.search(r"[A-Za-z]{2}", words):
            lead = len(raw) - len(raw.lstrip())
            line = text.line + text.text.count("\n", 0, start + lead)
            yield Clause(text.kind, line, words)
        start = end[1]
