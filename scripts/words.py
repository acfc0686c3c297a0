"""Finds sentences and names in `kgw/` that a reader who is new to the code has to read twice.

    python scripts/words.py                     # clauses, findings and doubled names by folder
    python scripts/words.py --list [FOLDER]     # every finding
    python scripts/words.py --check             # against scripts/words_budget.toml
    python scripts/words.py --lower             # write the lower counts into the budget
    python scripts/words.py --draw 200 --seed 1 [--verdicts]

Rules, agreement with readers and blind spots: docs/decisions/0159-words.md.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import subprocess
import sys
import tarfile
import tokenize
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
BUDGET = "scripts/words_budget.toml"
TOP = "modules"
"""The folder under which the modules directly in `kgw/` are counted."""


class Clause(NamedTuple):
    """A sentence, or a part of one that `;` or `:` ends."""

    kind: str
    """Of its text: module, class, function, property, attribute or comment."""
    line: int
    text: str


class Finding(NamedTuple):
    """A clause that breaks rules, or the name of a module or class."""

    path: str
    line: int
    rules: str
    """Their names, with commas."""
    text: str


class Rule(NamedTuple):
    """A way to make a reader guess."""

    name: str
    advice: str
    pattern: re.Pattern[str]
    kind: str = ""
    """The only kind of text that the rule is for; empty for all."""


def _rule(name: str, advice: str, *patterns: str, kind: str = "") -> Rule:
    return Rule(name, advice, re.compile("|".join(patterns)), kind)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOUN = (
    r"\b(?:[Aa]|an|another|each|every|further|in|its|next|of|one|other|own|such|that|the|their|this"
    r"|whose) "
)
"""Words that tell a noun from a verb: "its lives" from "a partition that lives"."""
RULES = (
    _rule(
        "order",
        "the sentence begins with what belongs to its end, or with a denial: put the subject first",
        r"^[Oo]f (?!course)",
        r"^[Nn](obody|or|either)\b(?! knows)",
        r"\b[Ss]o (many|much|often|long)\b(?! (as|that)\b)",
        r"\b([Nn]othing|none)\b.* any more$",
        r"^[Tt]he (later|earlier|more|less|longer|larger|fewer)\b.* the \w+er\b",
        r"^(Beside|From|With|By|In|Of) (which|whom|whose|what)\b",
        r"^(Lost|Found|Given|Left|Taken|Written), ",
        r"^(Which|Why|How|Whether)\b[^,]*, [^,]*\b(tells?|says?|shows?|is told|decides?)$",
        r"\bexactly (if|when)\b",
    ),
    _rule(
        "where",
        "'where' stands for 'if' or for an offset, file or node: say which",
        r"^Where\b|\bto where\b|\bwhere [\w ]+ ha(s|ve) it\b",
    ),
    _rule(
        "pronoun",
        "a pronoun stands where the noun belongs: name the things",
        r"^([Tt]hose|[Oo]ne) (that|who|whose|which|of|with|behind|without)\b",
        r"\b(for|to|by|of|from) (those|ones) (that|who|whose)\b",
        r"\b[Aa]ll (that|there)\b|\bwhere all is\b",
        r"^That (one|of)\b|^None where none\b|\bothers like\b",
    ),
    _rule(
        "term",
        "an everyday word has a meaning of ours: use Kafka's or Python's term",
        r"^(?!.*\b([Ii]n|take|takes|taken|took)\b.{,25}\bplaces?\b)"
        r".*(?<!its )(?<!the )\b[Pp]laces?\b",
        r"\btold\b(?! (otherwise|that|to|not to|which|where|how)\b)",
        rf"{_NOUN}(?<!\bin )turns?\b(?! of the (event )?loop\b)",
        rf"{_NOUN}(life\b(?<!sign of life)|lives\b(?! (on|in)\b))",
        rf"{_NOUN}(looks?|notes?)\b",
        rf"{_NOUN}shares?\b(?! groups?\b)",
        r"\b([Pp]ieces?|asides?|strangers?|offenders?)\b",
        r"(?<!-)\b([Ss]tands?|stood|standing)\b(?!-| (by|for|in for|still|out)\b)",
    ),
    _rule(
        "whether",
        "a function's docstring begins with a verb: 'Return whether ...'",
        r"^Whether\b",
        kind="function",
    ),
)
WHAT = "what"
"""The rule of `lacks_noun`: "what" or "who" stands for a noun and asks nothing."""
_ASKING = _words(
    "ask asked asks check checks choose chosen decide decided decides describe describes explain"
    " explains find finds know knowing known knows learn matter matters notice regardless report"
    " reports said say saying says see seen sees show shows tell telling tells"
)
"""Verbs that a question follows: "says what failed" leaves nothing to guess."""
_CLASS_NAMES = _words("a an the became becomes leads")
"""Words after the "What" or "Who" at the start of a class: its name is the noun."""
_BETWEEN = _words("about and by exactly for in just of on or to with")
"""Words between such a verb and its question."""
_SUBJECTS = _words(
    "batches clients code commands compaction else groups java kafka kgw kind partitions people"
    " producers readers recompression requests retention seaweedfs smq spark time to topics"
    " transactions"
)
"""Words after "what" that name who acts: "what clients see" can be read once."""
_PLAIN_WHAT = re.compile(r"\bwhat (is|was|went) (wrong|missing)\b")
"""An idiom with nothing to guess."""
_PREPOSITIONS = _words("of by to from for and or but that than as with")
OWN_WORDS = _words(
    "aside asides due life lives note notes offender offenders piece pieces place places rest share"
    " shares standing stranger strangers told turn turns wanted"
)
"""Names of modules and classes that say nothing to a new reader."""

_DIRECTIVE = re.compile(r"#:?\s*(noqa|type:|pragma|ruff:|mypy:|fmt:|!|nosec)")
_CODE = re.compile(r"`[^`]*`")
_END = re.compile(r"(?<=[.!?;:])(?<!\be\.g\.)(?<!\bi\.e\.)[)\"']?\s+|\n[ \t]*\n\s*|\n\s*[-*] ")


def read_clauses(source: str) -> Iterator[Clause]:
    """Yield the clauses of docstrings, then of comments. Raises SyntaxError."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for index, one in enumerate(node.body):
            match one:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield from split("attribute" if index else _kind(node), one.lineno, text)
                case _:
                    pass
    for line, text in _comments(source):
        yield from split("comment", line, text)


def _kind(node: ast.AST) -> str:
    match node:
        case ast.Module():
            return "module"
        case ast.ClassDef():
            return "class"
        case ast.FunctionDef(decorator_list=decorators):
            is_property = any(ast.unparse(one).endswith("property") for one in decorators)
            return "property" if is_property else "function"
        case _:
            return "function"


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of comments; comments on adjacent lines are one text."""
    texts: list[tuple[int, str]] = []
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _DIRECTIVE.match(token.string):
            continue
        line, column = token.start
        text = token.string.lstrip("#:").strip()
        if line == last + 1 and not token.line[:column].strip():
            first, before = texts.pop()
            texts.append((first, f"{before}\n{text}"))
        else:
            texts.append((line, text))
        last = line
    yield from texts


def split(kind: str, line: int, text: str) -> Iterator[Clause]:
    """Yield the clauses of a text that begins on a line of its file."""
    # What is quoted as code does not end a clause.
    masked = _CODE.sub(lambda code: re.sub(r"[^`\n]", "x", code[0]), text)
    start = 0
    for end, behind in (*(one.span() for one in _END.finditer(masked)), (len(text), len(text))):
        raw = text[start:end]
        words = " ".join(raw.split()).strip("-").strip().rstrip(".;:")
        if re.search(r"[A-Za-z]{2}", words):
            lead = len(raw) - len(raw.lstrip())
            yield Clause(kind, line + text.count("\n", 0, start + lead), words)
        start = behind


def lacks_noun(clause: str, kind: str = "") -> bool:
    """Return whether "what" or "who" stands for a noun that the reader must guess."""
    words = re.findall(r"[\w'-]+|,", _PLAIN_WHAT.sub("", clause.lower()))
    for index, word in enumerate(words):
        if word not in {"what", "who"} or index + 1 == len(words):
            continue
        behind, before = words[index + 1], words[:index]
        is_named = behind in _SUBJECTS or (kind == "class" and not index and behind in _CLASS_NAMES)
        # In "a client who" the noun is there.
        is_relative = word == "who" and index > 0 and before[-1] not in _PREPOSITIONS
        while before and before[-1] in _BETWEEN:
            before.pop()
        is_asked = bool(before) and before[-1] in _ASKING
        if not (is_named or is_relative or is_asked):
            return True
    return False


def judge(clause: Clause) -> list[str]:
    """Return the names of the rules that a clause breaks."""
    text = _CODE.sub("code", clause.text)
    broken = [WHAT] if lacks_noun(text, clause.kind) else []
    return broken + [
        one.name for one in RULES if one.kind in {"", clause.kind} and one.pattern.search(text)
    ]


class Count:
    """What was found in the files of `kgw/`, whose paths begin with it."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        """Raises SyntaxError."""
        self.clauses: dict[str, list[Clause]] = {}
        """By path."""
        self.findings: dict[str, list[Finding]] = defaultdict(list)
        """By folder, also of folders without any."""
        self.dialect: Counter[str] = Counter()
        """Clauses with a finding, by folder."""
        modules: dict[str, set[str]] = defaultdict(set)
        for path, source in sorted(sources.items()):
            found = self.findings[folder_of(path)]
            classes = list(_class_names(source))
            found += _name_findings(path, classes)
            self.clauses[path] = list(read_clauses(source))
            for one in self.clauses[path]:
                if broken := judge(one):
                    found.append(Finding(path, one.line, ",".join(broken), one.text))
                    self.dialect[folder_of(path)] += 1
            if not path.startswith("kgw/protocol/messages/"):
                for name, _ in classes:
                    if not name.startswith("_"):
                        modules[name].add(path)
        self.doubled = {name: sorted(paths) for name, paths in modules.items() if len(paths) > 1}
        """Public class names that stand in several modules, without `protocol/messages`."""


def folder_of(path: str) -> str:
    """Return the folder of `kgw/` that a file is counted in."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else TOP


def _class_names(source: str) -> Iterator[tuple[str, int]]:
    """Yield the classes of a module, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            yield node.name, node.lineno


def _name_findings(path: str, classes: Iterable[tuple[str, int]]) -> Iterator[Finding]:
    for name, line in ((Path(path).stem, 1), *classes):
        if name.lstrip("_").lower() in OWN_WORDS:
            yield Finding(path, line, "name", name)


def _sources(root: Path) -> dict[str, str]:
    files = (one for one in (root / "kgw").rglob("*.py") if _is_ours(one.name))
    return {one.relative_to(root).as_posix(): one.read_text() for one in files}


def _is_ours(name: str) -> bool:
    """Return whether a file is Python that protoc has not written."""
    return name.endswith(".py") and not name.endswith(("_pb2.py", "_pb2_grpc.py"))


def _sources_when_budget_changed(root: Path) -> dict[str, str]:
    """Return the sources of the commit that last changed the budget; none without a history."""
    git = ["git", "-C", str(root)]
    try:
        log = [*git, "log", "-1", "--format=%H", "--", BUDGET]
        commit = subprocess.run(log, check=True, capture_output=True, text=True).stdout.strip()
        archive = [*git, "archive", commit, "kgw"]
        stored = subprocess.run(archive, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    with tarfile.open(fileobj=io.BytesIO(stored)) as files:
        read = ((one.name, files.extractfile(one)) for one in files)
        return {
            name: file.read().decode() for name, file in read if file is not None and _is_ours(name)
        }


def new_findings(now: Iterable[Finding], before: Iterable[Finding]) -> list[Finding]:
    """Return the findings that were not there before, wherever in its file each was."""
    known = Counter((one.path, one.text) for one in before)
    new = []
    for one in now:
        known[one.path, one.text] -= 1
        if known[one.path, one.text] < 0:
            new.append(one)
    return new


class Budget(NamedTuple):
    """How much may be found."""

    doubled: int
    findings: dict[str, int]
    """By folder; 0 for a folder that is not named."""


def read_budget(text: str) -> Budget:
    """Return the budget that a file has. Raises KeyError, TOMLDecodeError."""
    values = tomllib.loads(text)
    return Budget(values["doubled_class_names"], values["findings"])


def lowered(budget: Budget, count: Count) -> Budget:
    """Return a budget with the counts that are below it; none of its numbers rises."""
    least = {
        folder: min(most, len(count.findings.get(folder, ())))
        for folder, most in budget.findings.items()
    }
    return Budget(
        min(budget.doubled, len(count.doubled)), {name: n for name, n in least.items() if n}
    )


def _budget_text(budget: Budget) -> str:
    lines = [
        "# What scripts/words.py may find. Numbers fall only: `python scripts/words.py --lower`.",
        f"doubled_class_names = {budget.doubled}",
        "",
        "[findings]",
        *(f"{folder} = {most}" for folder, most in sorted(budget.findings.items())),
    ]
    return "\n".join(lines) + "\n"


def check(budget: Budget, count: Count, root: Path) -> Iterator[str]:
    """Yield a line for each count above the budget and each finding that is new since then."""
    over = {
        folder: found
        for folder, found in count.findings.items()
        if len(found) > budget.findings.get(folder, 0)
    }
    is_doubled = len(count.doubled) > budget.doubled
    before = Count(_sources_when_budget_changed(root) if over or is_doubled else {})
    for folder, found in over.items():
        most = budget.findings.get(folder, 0)
        yield f"kgw/{folder}: {len(found)} findings, the budget is {most}. New ones:"
        yield from map(_line, new_findings(found, before.findings.get(folder, ())))
    if is_doubled:
        yield f"{len(count.doubled)} doubled class names, the budget is {budget.doubled}. New ones:"
        for name in sorted(count.doubled.keys() - before.doubled.keys()):
            yield f"{name}: {', '.join(count.doubled[name])}"


def _line(one: Finding) -> str:
    return f"{one.path}:{one.line}: {one.rules}: {one.text}"


def _table(count: Count) -> Iterator[str]:
    clauses: Counter[str] = Counter()
    for path, found in count.clauses.items():
        clauses[folder_of(path)] += len(found)
    yield f"{'':16}{'clauses':>9}{'dialect':>9}{'':>8}{'names':>7}"
    for folder in (*sorted(count.findings), "all"):
        folders = count.findings if folder == "all" else [folder]
        total = sum(clauses[one] for one in folders)
        dialect = sum(count.dialect[one] for one in folders)
        names = sum(len(count.findings[one]) - count.dialect[one] for one in folders)
        share = dialect / total if total else 0
        yield f"{folder:16}{total:9,}{dialect:9,}{share:8.1%}{names:7,}"
    rules = Counter(
        rule for found in count.findings.values() for one in found for rule in one.rules.split(",")
    )
    advice = {WHAT: "a clause stands for a noun: name the thing", "name": "take a name that tells"}
    advice |= {one.name: one.advice for one in RULES}
    yield from (f"{rule:8}{rules[rule]:7,}  {advice[rule]}" for rule in advice)
    doubled = ", ".join(sorted(count.doubled))
    yield f"{len(count.doubled)} class names in two modules or more: {doubled}"


def _draw(count: Count, number: int, seed: int, *, verdicts: bool) -> Iterator[str]:
    """Yield clauses at random as `kind, clause`, with the rules of each before it if asked for."""
    clauses = [one for found in count.clauses.values() for one in found]
    for one in random.Random(seed).sample(clauses, number):
        verdict = f"{','.join(judge(one)) or 'plain'}\t" if verdicts else ""
        yield f"{verdict}{one.kind}\t{one.text}"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Print what the arguments ask for. Return 1 for a count above the budget."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", nargs="?", const="", metavar="FOLDER", help="each finding")
    parser.add_argument("--check", action="store_true", help="fail above the budget")
    parser.add_argument("--lower", action="store_true", help="lower the budget to the counts")
    parser.add_argument("--draw", type=int, metavar="N", help="clauses at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verdicts", action="store_true", help="of the clauses that are drawn")
    options = parser.parse_args(arguments)
    count = Count(_sources(root))
    if options.draw is not None:
        print(*_draw(count, options.draw, options.seed, verdicts=options.verdicts), sep="\n")
    elif options.list is not None:
        folder = options.list.removeprefix("kgw/").rstrip("/")
        if folder and folder not in count.findings:
            parser.error(f"kgw/ has no folder {folder}")
        for name in [folder] if folder else sorted(count.findings):
            for one in count.findings[name]:
                print(_line(one))
    elif options.check or options.lower:
        budget = read_budget((root / BUDGET).read_text())
        lower = lowered(budget, count)
        if options.lower:
            (root / BUDGET).write_text(_budget_text(lower))
        elif lower != budget:
            print("Fewer findings than the budget allows: python scripts/words.py --lower")
        problems = list(check(lower if options.lower else budget, count, root))
        print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
        return 1 if problems else 0
    else:
        print(*_table(count), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
