"""Writes docs/reference/*.md from the code, and docs/performance.md from bench/results.

It writes the manual page docs/reference/kgw.1 in the same way, and into docs/architecture.md the
ways of requests, from a traced run. The dashboard and the alerts in deploy/ come from the tables in
deploy/monitoring.

With --check nothing is written, and the exit status is 1 when a page is not what the code says.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from enum import Enum

    import click

    from kgw.admin.rights import Right
    from kgw.config import Setting
    from kgw.handlers.table import Handler

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
NOTICE = "<!-- Written by scripts/docs.py from the code. Change the code, then run it. -->\n\n"


def cell(text: object) -> str:
    """Text as it may stand in a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    lines = [list(head), *([cell(value) for value in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def link(text: str, title: str) -> str:
    """A link to what stands below a title of the same page."""
    return f"[{text}](#{title.lower().replace(' ', '-')})"


def kafka_name(name: str) -> str:
    """`LIST_OFFSETS` as Kafka's documentation writes it: ListOffsets."""
    return "".join(part.capitalize() for part in name.split("_"))


# --- APIs ----------------------------------------------------------------------------------------


def apis() -> str:
    """What is served, what is not, and what each handler says of itself."""
    from kgw.handlers.table import FEATURES_OFF, HANDLERS
    from kgw.protocol.api_keys import MESSAGE_KEYS
    from kgw.protocol.codec import request_class

    def section(handler: Handler) -> str:
        """The title below which an API is described."""
        is_off = handler.module_name == FEATURES_OFF
        return "Features that are off" if is_off else kafka_name(handler.api_key.name)

    served = sorted(HANDLERS.values(), key=lambda handler: handler.api_key)
    missing = sorted(MESSAGE_KEYS - HANDLERS.keys())
    page = [
        "# APIs\n\n",
        "What a client is told by ApiVersions, and what happens behind each entry.\n",
        "A version outside the range is answered with UNSUPPORTED_VERSION.\n\n",
        "## Served\n\n",
        table(
            ("Key", "API", "Versions", "Kafka 4.4 has"),
            (
                (
                    int(handler.api_key),
                    link(kafka_name(handler.api_key.name), section(handler)),
                    f"{handler.min_version}-{handler.max_version}",
                    "{}-{}".format(*request_class(handler.api_key).valid_versions),
                )
                for handler in served
            ),
        ),
        "\n## Not served\n\n",
        "Their messages are declared and tested; they are not advertised, and a request is refused",
        " cleanly.\n\n",
        table(
            ("Key", "API"),
            ((int(api_key), kafka_name(api_key.name)) for api_key in missing),
        ),
    ]
    # Several APIs may have one module: it is printed where the first of them stands.
    for title, module_name in {section(one): one.module_name for one in served}.items():
        source = ROOT / "kgw" / "handlers" / f"{module_name}.py"
        page.append(f"\n## {title}\n\n")
        page.append(f"{docstring_of(source)}\n")
    return "".join(page)


def rights() -> str:
    """The rights that each API declares, and how it answers with and without them."""
    from kgw.handlers.table import HANDLERS
    from tests.handlers.access_tried import all_tried

    served = sorted(HANDLERS.values(), key=lambda handler: handler.api_key)
    asking = [one for one in served if one.api.rights.asked()]
    open_to_all = [kafka_name(one.label) for one in served if not one.api.rights.asked()]
    tried = asyncio.run(all_tried())
    return "".join(
        [
            "# Rights\n\n",
            "What a client needs when [access rules](../security.md#access-rules) are on.\n",
            "READ, WRITE, DELETE and ALTER allow DESCRIBE, too, and ALTER_CONFIGS allows",
            " DESCRIBE_CONFIGS.\n",
            f"No right is asked for by {', '.join(open_to_all)}.\n\n",
            "## By API\n\n",
            "Each class of `kgw/handlers` declares these rights (`Api.rights`).\n",
            "A request needs the rights on what it names: a right that is asked for in some cases",
            " alone stands under *further*, and what they are is said",
            " [where the API is described](apis.md).\n",
            "One of the rights with *or* between them is enough.\n\n",
            table(
                ("Key", "API", "Topic", "Group", "Transactional id", "Cluster", "Further"),
                (rights_row(one) for one in asking),
            ),
            "\n## Tried\n\n",
            "The answers to two clients that have logged in with SCRAM: one that no rule mentions,",
            " and a super user.\n",
            "*Left out*: the answer has no error, and lacks what the client may not see.\n",
            "A super user's request goes on to be handled, and may fail for another reason.\n\n",
            table(
                ("API", "Request", "Version", "No rule", "Super user"),
                (
                    (
                        kafka_name(one.scenario.api.name),
                        one.scenario.name,
                        one.version,
                        ", ".join(one.codes(one.denied)) or "*left out*",
                        ", ".join(one.codes(one.allowed)) or "NONE",
                    )
                    for one in tried
                ),
            ),
        ]
    )


def rights_row(handler: Handler) -> Iterator[object]:
    """The rights that an API declares, by the type of the resource."""
    asked = handler.api.rights
    yield int(handler.api_key)
    yield kafka_name(handler.label)
    otherwise = "" if asked.or_cluster is None else f", or {asked.or_cluster.name} on the cluster"
    for operation in (asked.topic, asked.group):
        yield "" if operation is None else operation.name + otherwise
    for operation in (asked.transactional_id, asked.cluster):
        yield "" if operation is None else operation.name
    others, any_of = (
        [f"{operation.name} on {of.name.lower().replace('_', ' ')}" for operation, of in one]
        for one in (asked.others, asked.any_of)
    )
    yield ", ".join([*others, *([" or ".join(any_of)] if any_of else [])])


def docstring_of(source: Path) -> str:
    """A module's docstring, read without importing the module."""
    text = ast.get_docstring(ast.parse(source.read_text()))
    if text is None:
        message = f"{source} has no docstring"
        raise ValueError(message)
    return text.replace("<", "&lt;")


# --- configuration -------------------------------------------------------------------------------


def configuration() -> str:
    """Every setting of the server and of topics, and every one that Kafka has and kgw refuses."""
    from kgw.config import TOPIC_SETTINGS
    from kgw.config.refused import (
        _REFUSED_PREFIXES,
        REFUSED_SERVER_SETTINGS,
        REFUSED_TOPIC_SETTINGS,
    )
    from kgw.config.server_settings import SERVER_SECTIONS

    page = [
        "# Configuration\n\n",
        "A setting is taken from its default, then the TOML file given with `--config`, then the",
        " environment, then `--set KEY=VALUE`; the last one wins.\n",
        "`kgw serve --print-config` prints each effective value and where it came from.\n",
        "Names are Kafka's where Kafka has the setting, and begin with `kgw.` otherwise.\n",
        "*Live* settings take a new value while the server runs, by IncrementalAlterConfigs.\n",
    ]
    page.append("\n## Server\n")
    for section, settings in SERVER_SECTIONS.items():
        page.append(f"\n### {section.capitalize()}\n\n")
        page.append(settings_table(settings, environment=True))
    page.append("\n## Topics\n\n")
    page.append(
        "Given at CreateTopics, changed with AlterConfigs; unset ones follow the server.\n\n"
    )
    page.append(settings_table(TOPIC_SETTINGS.values(), environment=False))
    page.append("\n## Refused\n\n")
    page.append(
        "Kafka knows these and kgw does not do what they say, so it refuses to store them.\n"
    )
    page.append("\n### Server settings\n\n")
    refused = {
        **REFUSED_SERVER_SETTINGS,
        **{f"{prefix}*": reason for prefix, reason in _REFUSED_PREFIXES},
    }
    page.append(
        table(("Setting", "Why"), ((f"`{name}`", why) for name, why in sorted(refused.items())))
    )
    page.append("\n### Topic settings\n\n")
    page.append(
        table(
            ("Setting", "Why"),
            ((f"`{name}`", why) for name, why in sorted(REFUSED_TOPIC_SETTINGS.items())),
        )
    )
    return "".join(page)


def settings_table(settings: Iterable[Setting], *, environment: bool) -> str:
    """Rows of settings; topic settings have a server setting behind them, not a variable."""
    from kgw.config.load import environment_name

    def rows() -> Iterator[tuple[str, ...]]:
        for setting in settings:
            kind = setting.type.name.lower() + (f", {setting.unit}" if setting.unit else "")
            default = setting.format(setting.default)
            behind = environment_name(setting.name) if environment else setting.server_setting
            yield (
                f"`{setting.name}`",
                kind,
                f"`{default}`" if default else "(empty)",
                limits(setting),
                "yes" if setting.dynamic else "",
                f"`{behind}`" if behind else "",
                setting.doc,
            )

    last = "Variable" if environment else "Server setting"
    return table(("Setting", "Type", "Default", "Limits", "Live", last, "Meaning"), rows())


def limits(setting: Setting) -> str:
    """What a value must satisfy, in a few words."""
    if setting.allowed:
        allowed = " or ".join(f"`{setting.format(value)}`" for value in setting.allowed)
        return f"only {allowed}" + (f": {setting.reason}" if setting.reason else "")
    natural = {(1 << 31) - 1, (1 << 63) - 1, None}
    maximum = None if setting.maximum in natural else setting.maximum
    if setting.minimum is None and maximum is None:
        return ""
    if maximum is None:
        return f"at least {setting.minimum}"
    return f"{setting.minimum} to {maximum}"


# --- command line --------------------------------------------------------------------------------


def command_line() -> str:
    """The help of every command, as the program prints it."""
    from kgw.cli import main

    page = ["# Command line\n\n", "The help of every command, as the program prints it.\n"]
    for name, text in helps(main):
        page.append(f"\n## {name}\n\n```text\n{text}\n```\n")
    return "".join(page)


def helps(command: click.Command, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """Name and help of a command and of all below it."""
    import click

    name = "kgw" if parent is None else command.name
    settings = {**command.context_settings, "terminal_width": 80}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    yield context.command_path, text
    if isinstance(command, click.Group):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            if child is not None and not child.hidden:
                yield from helps(child, context)


# --- errors --------------------------------------------------------------------------------------


def errors() -> str:
    """Kafka's codes with the modules that answer them, and the exceptions behind them."""
    from kgw import errors as module
    from kgw.errors import ErrorCode, KgwError

    places: dict[str, list[str]] = {}
    for source in sorted((ROOT / "kgw").rglob("*.py")):
        shown = source.relative_to(ROOT / "kgw").as_posix()
        if shown.split("/")[0] in {"errors.py", "cli", "client", "migrate", "pipeline", "testing"}:
            continue
        for name in set(re.findall(r"\bErrorCode\.([A-Z_]+)", source.read_text())):
            places.setdefault(name, []).append(shown)
    own = [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, KgwError) and kind is not KgwError
    ]
    own.sort(key=lambda kind: inspect.getsourcelines(kind)[1])
    return "".join(
        [
            "# Errors\n\n",
            f"{inspect.getdoc(module)}\n\n",
            "## Exceptions\n\n",
            table(
                ("Exception", "Is a", "Meaning"),
                (
                    (f"`{kind.__name__}`", f"`{kind.__base__.__name__}`", inspect.getdoc(kind))
                    for kind in own
                    if kind.__base__ is not None
                ),
            ),
            "\n## Codes\n\n",
            "Kafka's codes. A client sends a request again by itself after a retriable one.\n",
            "Codes without a place are declared and not answered yet.\n\n",
            table(
                ("Code", "Name", "Retriable", "Said in"),
                (
                    (
                        int(code),
                        code.name,
                        "yes" if code.retriable else "",
                        ", ".join(f"`{place}`" for place in places.get(code.name, [])),
                    )
                    for code in ErrorCode
                    if code is not ErrorCode.NONE
                ),
            ),
        ]
    )


# --- metrics -------------------------------------------------------------------------------------


def metrics() -> str:
    """Every metric, its labels and what it counts."""
    from kgw import metrics as module

    return "".join(
        [
            "# Metrics\n\n",
            "Labels are bounded: an API, an error code, a reason, as many groups as a setting",
            " says; never a topic or a client.\n",
            "`/metrics` of the [admin listeners](admin.md) has them in Prometheus' text.\n",
            "Names, kinds and labels are [stable](../monitoring.md#what-is-stable).\n",
            "Of the process there are prometheus-client's `process_cpu_seconds_total`, ",
            "`process_resident_memory_bytes`, `process_virtual_memory_bytes`, ",
            "`process_start_time_seconds`, `process_open_fds` and `process_max_fds`, where Linux ",
            "tells them.\n\n",
            table(
                ("Metric", "Kind", "Labels", "Meaning"),
                (
                    (
                        f"`{metric.name}`",
                        metric.kind,
                        ", ".join(f"`{label}`" for label in metric.labels),
                        metric.help,
                    )
                    for metric in module.METRICS
                ),
            ),
        ]
    )


# --- admin ---------------------------------------------------------------------------------------


def right(asked: Right) -> str:
    """A right of an endpoint, as a part of a sentence."""
    if not asked.parameter:
        return f"{asked.operation.name} on the cluster"
    return f"{asked.operation.name} on the `{asked.parameter}` that is named"


def admin() -> str:
    """Every path of the admin listeners with its parameters."""
    from kgw.admin.endpoints import ALL_ENDPOINTS

    page = [
        "# Admin endpoints\n\n",
        "What `kgw.admin.listeners` serves over HTTP; [how to use it](../admin.md).\n",
    ]
    for one in ALL_ENDPOINTS:
        page += [f"\n## `{one.path}`\n\n{one.help}\n"]
        page += [f"\nWith access rules it needs {' and '.join(map(right, one.rights))}.\n"]
        if one.for_everybody:
            names = ", ".join(f"`{name}`" for name in one.for_everybody)
            page += [f"Without a login or that right: the status and {names} alone.\n"]
        if one.parameters:
            rows = (
                (f"`{each.name}`", f"{each.help}{' Needed.' if each.is_required else ''}")
                for each in one.parameters
            )
            page += ["\n", table(("Parameter", "Meaning"), rows)]
    return "".join(page)


# --- groups --------------------------------------------------------------------------------------


def groups() -> str:
    """The states of a classic group, drawn from the table that the code obeys."""
    from kgw.groups import states
    from kgw.groups.trace import RebalanceCause

    return "".join(
        [
            states_of("Groups", "a classic group", states, states.GroupState),
            "\n## Members\n\n",
            "How far each is: `kgw groups describe --members` and `/api/v1/groups/members`.\n",
            "DescribeGroups has no place for it.\n\n",
            meanings_of(states, states.MemberState),
            "\n## Why a rebalance began\n\n",
            "The causes that `kgw groups explain` and `kgw_group_rebalances_total` name.\n\n",
            "".join(f"- `{cause.value}`\n" for cause in RebalanceCause),
        ]
    )


def transactions() -> str:
    """The states of a transactional id, drawn from the table that the code obeys."""
    from kgw.transactions import states
    from kgw.transactions.machine import EndCause

    return "".join(
        [
            states_of("Transactions", "a transactional id", states, states.TransactionState),
            "\n## How a transaction ended\n\n",
            "The results that `kgw_transactions_ended_total` names.\n\n",
            "".join(f"- `{cause.value}`\n" for cause in EndCause),
        ]
    )


def states_of(title: str, what: str, module: Any, states: type[Enum]) -> str:
    """The beginning of a page: the diagram of a module's table of transitions, and the states."""
    lines = ["```mermaid\n", "stateDiagram-v2\n", "    [*] --> Empty\n"]
    for state, events in module.TRANSITIONS.items():
        for event, target in events.items():
            lines.append(f"    {state.value} --> {target.value}: {event.value}\n")
    lines += ["    Dead --> [*]\n", "```\n"]
    return "".join(
        [
            f"# {title}\n\n",
            f"The states of {what} and what moves it from one to another.\n",
            "The diagram is drawn from the table that the code obeys: what is not in it cannot",
            " happen.\n\n",
            *lines,
            "\n",
            meanings_of(module, states),
        ]
    )


def meanings_of(module: Any, states: type[Enum]) -> str:
    """A table of states and what the strings below them say."""
    meanings = enum_docstrings(Path(module.__file__), states.__name__)
    return table(("State", "Meaning"), ((state.value, meanings[state.name]) for state in states))


def enum_docstrings(source: Path, class_name: str) -> dict[str, str]:
    """The strings that stand below the members of an enumeration."""
    tree = ast.parse(source.read_text())
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            for member, text in itertools.pairwise(node.body):
                if (
                    isinstance(member, ast.Assign)
                    and isinstance(member.targets[0], ast.Name)
                    and isinstance(text, ast.Expr)
                    and isinstance(text.value, ast.Constant)
                ):
                    found[member.targets[0].id] = str(text.value.value)
    return found


# --- performance ---------------------------------------------------------------------------------


def performance() -> str:
    """What `bench/results` holds, with the bars and reasons of bench/scenarios.

    SystemExit where a scenario has runs of several revisions or scales: there is no median of them.
    """
    from bench.harness.page import performance_page
    from bench.harness.results import load
    from bench.scenarios.registry import FAMILIES

    kept = sorted((ROOT / "bench" / "results").glob("*.jsonl"))
    results = load(kept)
    for scenario, origins in results.mixed.items():
        mixed = ", ".join(map(str, sorted(origins)))
        message = f"bench/results holds {scenario} of {mixed}: keep those of one alone"
        raise SystemExit(message)
    recompression = ROOT / "bench" / "results" / "recompression.json"
    return performance_page(results, FAMILIES, json.loads(recompression.read_text()))


# --- ways of requests ----------------------------------------------------------------------------


def architecture() -> str:
    """The page as it is, with each way that a traced run no longer takes put right."""
    page = (DOCS / "architecture.md").read_text()
    program = [sys.executable, str(ROOT / "scripts" / "ways.py")]
    found = subprocess.run(program, check=True, stdout=subprocess.PIPE)
    for api, seen in json.loads(found.stdout).items():
        head = f"<!-- way of {api}: scripts/docs.py -->\n```text\n"
        before, _, rest = page.partition(head)
        written, _, behind = rest.partition("```\n")
        page = f"{before}{head}{written if written in seen else seen[0]}```\n{behind}"
    return page


# --- options of Spark's format -------------------------------------------------------------------


def pipeline() -> str:
    """The page as it is, with its tables of options as the code obeys them."""
    from kgw.pipeline.option_table import OPTIONS, Use

    def uses(*of: Use) -> tuple[str, ...]:
        return tuple(one.value for one in of)

    together: dict[tuple[Use, Use, Use, str], list[str]] = {}
    for one in OPTIONS:
        if Use.OBEYED not in one[1:4]:
            together.setdefault(one[1:], []).append(f"`{one.name}`")
    page = (DOCS / "pipeline.md").read_text()
    for name, rows in (
        (
            "reading",
            table(
                ("Option", "Batch", "Stream", "What it does"),
                (
                    (f"`{one.name}`", *uses(one.batch, one.stream), one.text)
                    for one in OPTIONS
                    if Use.OBEYED in {one.batch, one.stream}
                ),
            ),
        ),
        (
            "writing",
            table(
                ("Option", "What it does"),
                (
                    (f"`{one.name}`", one.text)
                    for one in OPTIONS
                    if one.sink is Use.OBEYED and one.batch is not Use.OBEYED
                ),
            ),
        ),
        (
            "neither",
            table(
                ("Options", "Batch", "Stream", "Sink", "Why"),
                (
                    (", ".join(sorted(names)), *uses(*of[:3]), of[3])
                    for of, names in together.items()
                ),
            ),
        ),
    ):
        head, end = f"<!-- options, {name}: scripts/docs.py -->\n", "<!-- end -->"
        before, _, rest = page.partition(head)
        _, _, behind = rest.partition(end)
        page = f"{before}{head}\n{rows}\n{end}{behind}"
    return page


# --- monitoring ----------------------------------------------------------------------------------


def alerts() -> str:
    """Every alert: what it means, what to look at, what to do."""
    from deploy.monitoring.rules import runbook

    return runbook()


def problems() -> str:
    """Every reason for which records are refused, or served otherwise than they should be."""
    from kgw.problems import REASONS, REFUSED_LATELY_S

    return "".join(
        [
            "# Problems\n\n",
            "Why records are refused, or are served otherwise than they should be.\n",
            "Each reason is told in the same words by `reasons` and `problems` of `/health/ready` ",
            "([admin](admin.md)), by `kgw doctor`, which needs no admin listener, by the metric ",
            "`kgw_problem` with the label `reason`, and by a line `problem` in the log when it ",
            "begins and `problem is over` when it ends; [alerts](alerts.md) go by the metric.\n",
            "The server looks for them every five seconds, and whenever it is asked.\n",
            f"A refusal is told of for {REFUSED_LATELY_S / 60:.0f} minutes after it has happened ",
            "last, unless it is known before that nothing would be refused any more.\n",
            "What damage, the storage or others in SeaweedFS are found to have done is in the log ",
            "at once, one by one, as `storage problem` or `others write where kgw does`.\n\n",
            table(
                ("Reason", "Not ready", "Refuses", "Meaning", "It is over"),
                (
                    (
                        f"`{one.name}`",
                        "yes" if one.stops else "",
                        ("all" if one.stops else "some") if one.refuses else "",
                        one.meaning,
                        one.ends,
                    )
                    for one in REASONS
                ),
            ),
        ]
    )


# --- threats -------------------------------------------------------------------------------------


def threats() -> str:
    """Every threat with its rule, the modules that decide, and the tests that prove it.

    SystemExit where a module or a test that is named is not there.
    """
    from tests.security.threats import (
        THREATS,
        Boundary,
        missing_modules,
        missing_proofs,
    )

    missing = [*missing_modules(THREATS), *missing_proofs(THREATS)]
    if missing:
        message = f"tests/security/threats.py names what is not there: {', '.join(missing)}"
        raise SystemExit(message)
    page = [
        "# Threats\n\n",
        "What kgw is protected against, by the boundaries of the [security model]",
        "(../security-model.md#boundaries): the rule, the modules that decide, and the tests that ",
        "prove it.\n",
        "`scripts/test` runs these tests; a letter and a number is the campaign that they belong ",
        "to, as in [fault campaigns](../testing.md).\n",
        "A row whose test is renamed or removed fails `scripts/check`.\n",
    ]
    for boundary in Boundary:
        page.append(f"\n## {boundary.value}\n\n")
        page.append(
            table(
                ("Threat", "Rule", "Decided in", "Proven by", "Campaign"),
                (
                    (
                        one.threat,
                        one.rule,
                        ", ".join(f"`{module}`" for module in one.modules),
                        ", ".join(f"`{proof}`" for proof in one.proofs),
                        one.campaign,
                    )
                    for one in THREATS
                    if one.boundary is boundary
                ),
            )
        )
    return "".join(page)


def deployed() -> dict[str, str]:
    """The files of deploy/ that are written, by their names from docs/."""
    from deploy.monitoring.dashboard import dashboard
    from deploy.monitoring.rules import rules

    return {
        "../deploy/grafana/kgw.json": dashboard(),
        "../deploy/prometheus/alerts.yaml": rules(),
    }


PAGES: dict[str, Callable[[], str]] = {
    "reference/apis.md": apis,
    "reference/rights.md": rights,
    "reference/configuration.md": configuration,
    "reference/cli.md": command_line,
    "reference/errors.md": errors,
    "reference/metrics.md": metrics,
    "reference/alerts.md": alerts,
    "reference/problems.md": problems,
    "reference/groups.md": groups,
    "reference/transactions.md": transactions,
    "reference/admin.md": admin,
    "reference/threats.md": threats,
    "performance.md": performance,
}


def stale_pages() -> dict[str, str]:
    """The pages that are not what the code says, with what they should be."""
    from scripts.man_page import man_page

    stale: dict[str, str] = {}
    wanted_pages = {name: NOTICE + write() for name, write in PAGES.items()}
    wanted_pages["architecture.md"] = architecture()
    wanted_pages["pipeline.md"] = pipeline()
    wanted_pages |= deployed()
    wanted_pages["reference/kgw.1"] = man_page()
    for name, wanted in wanted_pages.items():
        page = DOCS / name
        if not page.exists() or page.read_text() != wanted:
            stale[name] = wanted
    return stale


def shown(name: str) -> str:
    """A written file's name from the root of the project."""
    return (DOCS / name).resolve().relative_to(ROOT).as_posix()


def main() -> int:
    """Writes or checks the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, report what is stale")
    arguments = parser.parse_args()
    # The checkout that this script lies in, not one that happens to be installed.
    sys.path.insert(0, str(ROOT))
    stale = stale_pages()
    for name, wanted in stale.items():
        if arguments.check:
            print(f"{shown(name)} is stale; scripts/docs.py writes it", file=sys.stderr)
        else:
            (DOCS / name).write_text(wanted)
            print(f"{shown(name)} written")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
