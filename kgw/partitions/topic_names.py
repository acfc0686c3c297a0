"""Which names a topic may have."""

from __future__ import annotations

import re

MAX_NAME_LENGTH = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> str | None:
    """Return why Kafka's rules refuse a topic name; None for a legal one."""
    if not name:
        return "a topic name cannot be empty"
    if name in {".", ".."}:
        return f"a topic cannot be called {name!r}"
    if len(name) > MAX_NAME_LENGTH:
        return f"a topic name has at most {MAX_NAME_LENGTH} characters, not {len(name)}"
    if not _LEGAL.fullmatch(name):
        return f"{name!r}: a topic name is made of letters, digits, '.', '_' and '-'"
    return None


def unified_name(name: str) -> str:
    """Return the form in which names collide: metrics write '.' and '_' alike (KAFKA-495)."""
    return name.replace(".", "_")
