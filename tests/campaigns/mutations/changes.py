"""Small, serious changes to a module's source: what a test must notice.

Pure: source text in, changes out. Left out is what no behaviour rests on: annotations, messages of
errors, `__repr__`, logging, and numbers other than 0 and 1, which are mostly tuning.
"""

from __future__ import annotations

import ast
import re
from typing import Final, NamedTuple

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
_ARITHMETIC: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: (r"\|", "&"),
}
_FUNCTIONS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_TELLING: Final = {"report", "debug", "info", "warning", "error", "exception", "log", "_log"}
_NOT_BEHAVIOUR: Final = {"__repr__", "__str__"}


class Change(NamedTuple):
    """One change: the text of [start, end), in bytes of the UTF-8 source, becomes another."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def apply(self, source: bytes) -> bytes:
        """Return the changed source. Raises ValueError when the source is another one."""
        if source[self.start : self.end].decode() != self.old:
            raise ValueError(f"{self.path}:{self.line}: the source has changed")
        return source[: self.start] + self.new.encode() + source[self.end :]

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.path}:{self.line}: `{old}` -> `{new}`"


def changes_of(path: str, source: bytes) -> list[Change]:
    """Return every change of a module, in the order of the source. Raises SyntaxError."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return sorted(finder.changes, key=lambda change: (change.start, change.end, change.new))


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: bytes) -> None:
        self.changes: list[Change] = []
        self._path = path
        self._source = source
        self._line_starts = [0]
        for line in source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))
        self._depth = 0
        """How many functions surround the node."""

    # --- positions ---

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._line_starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._line_starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr | ast.stmt) -> str:
        return self._source[self._start(node) : self._end(node)].decode()

    def _add(self, start: int, end: int, new: str) -> None:
        line = self._source.count(b"\n", 0, start) + 1
        old = self._source[start:end].decode()
        self.changes.append(Change(self._path, line, start, end, old, new))

    def _replace(self, node: ast.expr | ast.stmt, new: str) -> None:
        self._add(self._start(node), self._end(node), new)

    def _replace_between(self, left: ast.expr, right: ast.expr, pattern: str, new: str) -> None:
        """Replace an operator; comments between its operands are rare enough to be passed over."""
        start, end = self._end(left), self._start(right)
        between = self._source[start:end].decode()
        word = rf"\b{pattern}\b" if pattern[0].isalpha() else pattern
        found = re.search(word, between)
        if found is not None and "#" not in between:
            self._add(start + found.start(), start + found.end(), new)

    # --- what is left out ---

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in _NOT_BEHAVIOUR:
            return
        self._depth += 1
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._depth -= 1

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._visit_assignment(node, [node.target])
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts are for people."""

    def visit_Raise(self, node: ast.Raise) -> None:
        if "NotImplementedError" not in self._text(node):
            self._replace(node, "pass")

    # --- what is changed ---

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._replace(node.test, "True")
        self._replace(node.test, "False")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._replace(node.test, "True")
        self._replace(node.test, "False")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            pattern, new = _COMPARISONS[type(operator)]
            self._replace_between(left, right, pattern, new)
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        pattern, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._replace_between(left, right, pattern, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace(node, self._text(node.operand))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        change = _ARITHMETIC.get(type(node.op))
        if change is not None:
            self._replace_between(node.left, node.right, *change)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if node.value is True or node.value is False:
            self._replace(node, str(not node.value))
        elif node.value in {0, 1} and type(node.value) is int and self._depth:
            self._replace(node, str(node.value + 1))

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
            self._replace(node.func, _FUNCTIONS[node.func.id])
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        called = node.value.value if isinstance(node.value, ast.Await) else node.value
        if not isinstance(called, ast.Call):
            self.generic_visit(node)
            return
        name = (
            called.func.attr if isinstance(called.func, ast.Attribute) else self._text(called.func)
        )
        if name not in _TELLING:
            self._replace(node, "pass")
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._visit_assignment(node, node.targets)
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "pass")
        self.visit(node.value)

    def _visit_assignment(self, node: ast.stmt, targets: list[ast.expr]) -> None:
        """A plain name that is assigned is used, or a linter says so: state may not be."""
        if self._depth and all(isinstance(one, ast.Attribute | ast.Subscript) for one in targets):
            self._replace(node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "pass")


def is_compilable(change: Change, source: bytes) -> bool:
    """Return whether the changed source still compiles: `x = not in y` is nobody's mistake."""
    try:
        compile(change.apply(source), change.path, "exec")
    except SyntaxError:
        return False
    return True
