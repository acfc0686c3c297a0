"""scripts/redesign_counts.py: what each count takes in."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

from scripts.redesign_counts import (
    MANY_METHODS,
    ROOT,
    doubled_class_names,
    error_response_lines,
    error_responses,
    files,
    functions_with_turns,
    large_classes,
    leadership_modules,
    lines,
)


def handler(source: str) -> dict[str, str]:
    """Return the sources of a checkout with one handler."""
    return {"kgw/handlers/one.py": dedent(source)}


def class_with(methods: int, *, path: str = "kgw/one.py") -> dict[str, str]:
    """Return the sources of a checkout with one class; every other method is a property."""
    method, stored = "    def method_{}(self): ...", "    @property"
    body = [(stored + "\n") * (number % 2) + method.format(number) for number in range(methods)]
    return {path: "\n".join(["class One:", *body])}


@pytest.mark.parametrize(
    "source",
    [
        "def answer(request): return in_turns(request)",
        "async def answer(request): await turns.take_turns(request)",
        "def answer(request, shares): return request",
        "def answer(request: Request, share: Share) -> Response: return request",
        "def answer(request) -> Turns: return request",
        "def answer(request): later.finish()",
        "class Later:\n    def answer(self): self.shares = 1",
    ],
)
def test_function_knows_turns_by_names_in_body_or_annotations(source: str) -> None:
    """A call, an attribute, a parameter and an annotation each make a function count."""
    assert functions_with_turns(handler(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "def finish(request): return request",
        "from kgw.turns import in_turns\n\ndef answer(request): return request",
        'def answer(request):\n    """Answer in_turns and finish."""\n    return "Share"',
        "def answer(request): return finished(request)",
    ],
)
def test_function_without_such_a_name_does_not_count(source: str) -> None:
    """Its own name, imports of the module, texts and longer names do not count."""
    assert functions_with_turns(handler(source)) == 0


def test_inner_function_counts_beside_outer_one() -> None:
    """What an inner function uses is in the body of the outer one, too."""
    source = """
        def answer(request):
            def part(share: Share):
                return request
            return part
    """
    assert functions_with_turns(handler(source)) == 2


def test_turns_count_in_handlers_alone() -> None:
    """Functions of other packages may know turns."""
    assert functions_with_turns({"kgw/groups/one.py": "def answer(): return in_turns()"}) == 0


def test_error_responses_are_definitions_with_their_lines() -> None:
    """Calls do not count; the lines are from `def` to the end."""
    source = '''
        def error_response(request, code):
            """Return the answer that refuses all."""
            return Response(code)

        def answer(request):
            return error_response(request, 1)
    '''
    assert error_responses(handler(source)) == 1
    assert error_response_lines(handler(source)) == 3


def test_class_is_large_with_more_methods_than_many() -> None:
    """Properties are methods; a class of just as many is not large."""
    assert large_classes(class_with(MANY_METHODS)) == 0
    assert large_classes(class_with(MANY_METHODS + 1)) == 1


def test_suite_of_tests_is_no_large_class() -> None:
    """Classes of kgw/testing do not count, nor do those outside kgw."""
    assert large_classes(class_with(MANY_METHODS + 1, path="kgw/testing/suite.py")) == 0
    assert large_classes(class_with(MANY_METHODS + 1, path="tests/suite.py")) == 0


@pytest.mark.parametrize(
    "source", ["gateway.on_leadership = None", "# Of its leadership.", "x = Leadership.LOST"]
)
def test_module_mentions_leadership_anywhere(source: str) -> None:
    """Part of a name, a comment and a capital letter count, each module once."""
    assert leadership_modules({"kgw/one.py": f"{source}\n{source}", "kgw/two.py": ""}) == 1


def test_class_name_is_doubled_in_two_modules() -> None:
    """Names of protocol/messages do not count, nor a name twice in one module."""
    sources = {
        "kgw/one.py": "class Place: ...\nclass Once: ...",
        "kgw/two.py": "class Place: ...",
        "kgw/protocol/messages/fetch.py": "class Once: ...",
        "tests/test_one.py": "class Once: ...",
    }
    assert doubled_class_names(sources) == 1


def test_files_and_lines_of_kgw() -> None:
    """Lines are those of code; what lies outside kgw does not count."""
    sources = {"kgw/one.py": '"""Docstring."""\n\nx = 1\n', "tests/two.py": "y = 1\n"}
    assert files(sources) == 1
    assert lines(sources) == 1


def test_script_prints_each_count_of_this_checkout() -> None:
    """It runs as the first line of its docstring says."""
    printed = subprocess.run(
        [sys.executable, "scripts/redesign_counts.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert [line.split()[0] for line in printed] == [
        "functions",
        "error_response",
        "their",
        "classes",
        "modules",
        "class",
        "files",
        "lines",
    ]
