"""Compares the oracle with the StandardAuthorizer of Apache Kafka, which Java runs.

    python -m tests.security.oracle.compare JARS [--seed 1] [--rule-sets 400] [--questions 30]
        [--save verdicts.txt]

JARS is the folder that `bench/kafka-broker.sh CACHE_DIR` fills with the jars of a Kafka broker.
The file that `--save` writes lets a test compare the oracle with Kafka where there is no Java.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.security.oracle.cases import Case, generate, write

PROGRAM = Path(__file__).with_name("StandardAuthorizerVerdicts.java")
SHOWN = 20


def text_of(cases: list[Case]) -> str:
    """Return the text that the Java program reads."""
    file = io.StringIO()
    write(cases, file)
    return file.getvalue()


def digest(cases: list[Case]) -> str:
    """Return a digest by which saved verdicts name their cases."""
    return hashlib.sha256(text_of(cases).encode()).hexdigest()


def verdicts(cases: list[Case], jars: Path) -> list[int]:
    """Return what Kafka's authorizer answers to each case."""
    java = shutil.which("java")
    if java is None:
        message = "java is not on the path"
        raise FileNotFoundError(message)
    command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(PROGRAM)]
    ran = subprocess.run(
        command, input=text_of(cases), stdout=subprocess.PIPE, check=True, encoding="utf-8"
    )
    return [int(line) for line in ran.stdout.splitlines()]


def differences(cases: list[Case], answers: list[int]) -> tuple[list[tuple[Case, int]], int]:
    """Return the cases that Kafka answers otherwise, and how many only its known defect explains.

    The known defect is `AccessRules.star_names_escape`.
    """
    different = []
    known = 0
    for case, answer in zip(cases, answers, strict=True):
        if case.expected == answer:
            continue
        if case.answer(replace(case.rule_set.access_rules(), star_names_escape=True)) == answer:
            known += 1
        else:
            different.append((case, answer))
    return different, known


def main() -> int:
    """Print the differences, and end with 1 if there are any."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("jars", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rule-sets", type=int, default=400)
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--save", type=Path)
    arguments = parser.parse_args()
    cases = list(generate(arguments.seed, arguments.rule_sets, arguments.questions))
    answers = verdicts(cases, arguments.jars)
    different, known = differences(cases, answers)
    for case, answer in different[:SHOWN]:
        sys.stdout.write(f"{case}\n  Kafka answers {answer}, rules:\n")
        sys.stdout.writelines(f"    {rule}\n" for rule in case.rule_set.access_rules().rules)
    sys.stdout.write(
        f"{len(cases)} cases, {len(different)} differences, {known} by the known defect\n"
    )
    if arguments.save is not None:
        lines = [digest(cases), *map(str, answers)]
        arguments.save.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
