"""scripts/words.py: clauses that are read, sentences that are found, a budget that only falls."""

from __future__ import annotations

import subprocess
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from scripts.words import (
    BUDGET,
    Budget,
    Clause,
    Count,
    Finding,
    judge,
    lowered,
    main,
    new_findings,
    read_budget,
    read_clauses,
    split,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

SAMPLE = Path(__file__).parent / "words_sample.tsv"


def rules_of(text: str, kind: str = "comment") -> set[str]:
    """Return the rules that any clause of a text breaks."""
    return {rule for clause in split(kind, 1, text) for rule in judge(clause)}


@pytest.mark.parametrize(
    ("kind", "text", "rule"),
    [
        (
            "function",
            "Whether a partition of this node is not open yet; it is opened before others.",
            "whether",
        ),
        (
            "function",
            "What is raised leaves open what is shown: nothing may be written after it.",
            "what",
        ),
        ("comment", "Of two processes at one port the second one has to hear of it.", "order"),
        ("attribute", "Where a partition goes on with what others write.", "where"),
        (
            "attribute",
            (
                "In the plan of a query exactly if its result depends on the system's columns by a"
                " star."
            ),
            "order",
        ),
        ("comment", "what comes", "what"),
        ("comment", "who has it", "what"),
        ("comment", "of what it was told", "what"),
        ("comment", "Of each key the newest record", "order"),
    ],
)
def test_sentence_of_the_table_is_found(kind: str, text: str, rule: str) -> None:
    """Each sentence that the redesign gives as an example of the dialect is found by its rule."""
    assert rule in rules_of(text, kind)


@pytest.mark.parametrize("kind", ["function", "property", "attribute", "comment"])
@pytest.mark.parametrize(
    "text",
    [
        "Open this partition next. Return whether it was still closed.",
        "If this raises, it is unknown which batches readers saw; stop writing.",
        "Fail if another process already listens on this port.",
        "First offset after the restored records.",
        "Present in a query plan only if `*` expands to system columns.",
    ],
)
def test_plain_sentence_is_not_found(kind: str, text: str) -> None:
    """The sentences that the redesign gives as better ones break no rule anywhere."""
    assert set() == rules_of(text, kind)


@pytest.mark.parametrize(
    "text",
    [
        "The message says what failed",
        "A client that is told to retry waits first",
        "`what` is an argument",
        "The file takes the place of the old one",
        "A partition lives on one node",
        "The answers come in turn",
        "Return what is wrong with a file",
        "a client who reads",
    ],
)
def test_everyday_use_is_not_found(text: str) -> None:
    """Indirect questions and idioms may use the words that the rules look for."""
    assert set() == rules_of(text)


@pytest.mark.parametrize(
    "name", ["asides", "standing", "wanted", "strangers", "lives", "places", "offenders"]
)
def test_module_name_of_the_table_is_found(name: str) -> None:
    """A module with a name of the table is a finding, without any text in it."""
    path = f"kgw/agent/{name}.py"
    assert [Finding(path, 1, "name", name)] == Count({path: ""}).findings["agent"]


def test_class_names_of_the_table_are_found() -> None:
    """`Rest` and `Share` are findings, private ones too; the names instead of them are not."""
    source = "class Rest: ...\nclass _Share: ...\nclass Remaining: ...\nclass Budget: ...\n"
    found = Count({"kgw/turns_of_tests.py": source}).findings["modules"]
    assert [(1, "Rest"), (2, "_Share")] == [(one.line, one.text) for one in found]


@pytest.mark.parametrize(
    "name",
    ["failed_rewrites", "status", "subscribe_request", "foreign_writes", "generations", "parts"],
)
def test_better_module_name_is_not_found(name: str) -> None:
    """The names that the table gives instead are no findings."""
    assert [] == Count({f"kgw/agent/{name}.py": ""}).findings["agent"]


def test_docstrings_attributes_and_comments_are_read() -> None:
    """Every kind of text is read, with the line of each clause; directives and code are not."""
    source = dedent('''\
        """A module."""
        LIMIT = 1
        """An attribute; it has
        two lines."""
        class Box:
            """A class."""
            size: int
            """A field."""
            @property
            def width(self) -> int:
                """A property."""
                return 1  # Behind code.
            async def run(self) -> str:
                """A function."""
                # A comment
                # of two lines. Another sentence.
                return "no docstring"  # noqa: X1
        ''')
    assert [
        Clause("module", 1, "A module"),
        Clause("attribute", 3, "An attribute"),
        Clause("attribute", 3, "it has two lines"),
        Clause("class", 6, "A class"),
        Clause("attribute", 8, "A field"),
        Clause("property", 11, "A property"),
        Clause("comment", 12, "Behind code"),
        Clause("function", 14, "A function"),
        Clause("comment", 15, "A comment of two lines"),
        Clause("comment", 16, "Another sentence"),
    ] == sorted(read_clauses(source), key=lambda one: one.line)


def test_text_is_split_into_clauses() -> None:
    """Full stops, semicolons, colons, paragraphs and list items end a clause; quoted code not."""
    text = "One `a: b; c. d` two: three; four (e.g. five).\nSix\n\nSeven\n- eight\n- nine"
    assert [
        (1, "One `a: b; c. d` two"),
        (1, "three"),
        (1, "four (e.g. five)"),
        (2, "Six"),
        (4, "Seven"),
        (5, "eight"),
        (6, "nine"),
    ] == [(one.line, one.text) for one in split("comment", 1, text)]


def test_class_named_by_what_it_does_is_not_found() -> None:
    """The name of a class is the noun of its "What a ..."; a function has no such noun."""
    assert set() == rules_of("What a client sends.", "class")
    assert {"what"} == rules_of("What a client sends.", "function")


def test_generated_modules_are_left_out(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Modules that protoc has written are not counted."""
    write(tree, {"kgw/a/x_pb2.py": "# what comes\n", "kgw/a/x_pb2_grpc.py": "# what goes\n"})
    assert 0 == main(["--check"], tree)
    assert ("", "") == capsys.readouterr()


def test_doubled_class_names() -> None:
    """A public class name in two modules is counted once; messages and private names are not."""
    sources = {
        "kgw/a.py": "class Box: ...\nclass _Own: ...\nclass Fetch: ...",
        "kgw/b/c.py": "class Box: ...\nclass _Own: ...",
        "kgw/protocol/messages/fetch.py": "class Fetch: ...",
    }
    assert {"Box": ["kgw/a.py", "kgw/b/c.py"]} == Count(sources).doubled


def test_budget_only_falls() -> None:
    """Counts below the budget lower it, counts above do not raise it."""
    count = Count({"kgw/a/x.py": "# what comes", "kgw/b/x.py": "# what comes\n\n# what goes"})
    assert Budget(0, {"a": 1, "b": 1}) == lowered(Budget(3, {"a": 5, "b": 1, "gone": 4}), count)


def test_finding_that_has_moved_is_not_new() -> None:
    """A finding is known by its file and text, as often as it was there."""
    before = [Finding("kgw/a.py", 1, "what", "what comes")]
    again = Finding("kgw/a.py", 9, "what", "what comes")
    other = Finding("kgw/b.py", 1, "what", "what comes")
    assert [again, other] == new_findings([*before, again, other], before)


def git(root: Path, *arguments: str) -> None:
    """Run git in a repository of this test."""
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write files by their paths below a directory."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory with one finding, which its budget allows."""
    budget = "doubled_class_names = 0\n\n[findings]\na = 1\n"
    write(tmp_path, {"kgw/a/x.py": "# what comes\n", BUDGET: budget})
    return tmp_path


def test_count_within_the_budget_passes(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As many findings as the budget has are no error, and nothing is printed."""
    assert 0 == main(["--check"], tree)
    assert ("", "") == capsys.readouterr()


def test_count_above_the_budget_names_the_new_findings(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, and the findings and doubled names since the budget's last change."""
    git(tree, "init", "--quiet")
    git(tree, "add", ".")
    git(tree, "commit", "--quiet", "--message", "A budget")
    source = "# plain\n\n# what comes\n\n# Nobody waits\nclass Box: ...\n"
    write(tree, {"kgw/a/x.py": source, "kgw/b.py": "class Box: ...\n"})
    assert 1 == main(["--check"], tree)
    assert [
        "kgw/a: 2 findings, the budget is 1. New ones:",
        "kgw/a/x.py:5: order: Nobody waits",
        "1 doubled class names, the budget is 0. New ones:",
        "Box: kgw/a/x.py, kgw/b.py",
    ] == capsys.readouterr().err.splitlines()


def test_folder_without_a_budget_fails(tree: Path) -> None:
    """A new folder of kgw/ has a budget of 0."""
    write(tree, {"kgw/new/x.py": "# what comes\n"})
    assert 1 == main(["--check"], tree)


def test_lower_writes_the_lower_counts(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--check` says that the budget can be lowered, `--lower` lowers it; more fails then."""
    write(tree, {"kgw/a/x.py": "# The next record\n"})
    assert 0 == main(["--check"], tree)
    assert "--lower" in capsys.readouterr().out
    assert 0 == main(["--lower"], tree)
    assert Budget(0, {}) == read_budget((tree / BUDGET).read_text())
    write(tree, {"kgw/a/x.py": "# what comes\n"})
    assert 1 == main(["--lower"], tree)
    assert Budget(0, {}) == read_budget((tree / BUDGET).read_text())


def test_list_draw_and_table(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Findings are listed by folder, and clauses drawn with the verdict hidden or shown."""
    main(["--list", "kgw/a/"], tree)
    assert "kgw/a/x.py:1: what: what comes\n" == capsys.readouterr().out
    main(["--draw", "1", "--seed", "5"], tree)
    assert "comment\twhat comes\n" == capsys.readouterr().out
    main(["--draw", "1", "--seed", "5", "--verdicts"], tree)
    assert "what\tcomment\twhat comes\n" == capsys.readouterr().out
    main([], tree)
    assert ["a", "1", "1", "100.0%", "0"] == capsys.readouterr().out.splitlines()[1].split()


def test_checker_agrees_with_a_reader() -> None:
    """At least 85 % of 200 clauses, judged by a reader before the checker was asked."""
    rows = [line.split("\t") for line in SAMPLE.read_text().splitlines()]
    agreed = [
        (verdict == "dialect") == bool(judge(Clause(kind, 0, text))) for verdict, kind, text in rows
    ]
    assert 200 == len(agreed)
    assert sum(agreed) >= 170
