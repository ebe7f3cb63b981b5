"""What an assistant has to read for 17 ordinary tasks, over stdio with a real client.

    python tests/benchmarks/assistant_tasks.py --workdir DIR [--python PATH] [--client NAME] [--json FILE]

The documents are the sample data, nine files of one title, a handbook of 150,000 characters and eight notes about
certificates. Each task is a fixed sequence of calls; arguments that a server does not advertise are left out, so that
an older version is measured by the same script (`--python` names its interpreter). A task is solved when what was read
holds the answer. Characters are counted in text blocks and in structured content separately, because clients hand one
or the other to their model.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import Implementation

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("DATA", "CONFIG", "STATE", "CACHE")
TEN_TOOLS: dict[str, dict[str, Any]] = {
    "search": {"query": "what to do when the boiler shows E110"},
    "get_context": {},
    "get_document": {"sourceId": "security-policy.md"},
    "list_sources": {},
    "get_stats": {},
    "searchQuickstarts": {"displayName": "connect claude desktop"},
    "getRelevantRules": {"taskDescription": "write a database migration"},
    "retriever": {"queries": ["queue backlog"]},
    "tool_search": {"query": "remove a document"},
    "verify_citation": {"quote": "Automatic promotion is switched off on purpose."},
}


# ---------------------------------------------------------------- documents


def write_documents(folder: Path) -> None:
    """Make the documents, the same at every run."""
    shutil.copytree(ROOT / "sample_data" / "documents", folder / "sample")
    for number in range(9):
        news = folder / f"project-{number}" / "NEWS"
        news.parent.mkdir()
        lines = [f"Changes in version {number}.{minor}: part {minor} was rewritten.\n" for minor in range(6)]
        news.write_text("".join(lines))
    certificates = folder / "certificates"
    certificates.mkdir()
    for number, place in enumerate(("gateway", "mail", "lockers", "wiki", "backup", "monitor", "printer", "camera")):
        parts = [
            f"## Step {step}\n\nThe certificate of the {place} host is renewed by request {number}{step}. Check its "
            f"chain, install the certificate, reload the {place} service and write the date down.\n\n"
            for step in range(1, 7)
        ]
        (certificates / f"{place}-certificate.md").write_text(f"# Certificate of the {place}\n\n{''.join(parts)}")
    (folder / "handbook.md").write_text("# Machine handbook\n\n" + "".join(map(handbook_section, range(250))))


def handbook_section(number: int) -> str:
    sentences = (
        f"Station {number} is checked every {number % 9 + 2} weeks by two people.",
        f"Its pump moves {number * 7 + 40} liters an hour through filter F{number:03}.",
        f"Spare part {number * 13 + 1000} is kept in cupboard {number % 31}.",
        "Close the valve, wait until the needle rests, then open the cover and look for rust or leaves.",
        "Write every reading into the log before the cover is closed, and sign it with the date.",
        f"If the pressure is below {number % 5 + 1}.{number % 10} bar, call the workshop and leave the machine off.",
        "Clean the glass with water only, because solvents make it blind, and dry it with a soft cloth.",
        "The green lamp means ready, the yellow lamp means that a filter is due, the red lamp stops the belt.",
    )
    return f"## Station {number}\n\n{' '.join(sentences)}\n\n"


# ---------------------------------------------------------------- the assistant


class Assistant:
    """Calls tools and counts what comes back."""

    def __init__(self, client: Client, listed: dict[str, Any], folder: Path) -> None:
        self.client = client
        self.listed = listed
        self.folder = folder
        self.calls = self.text = self.structured = 0
        self.read = ""
        self.value: Any = None
        self.is_error = False

    async def call(self, name: str, /, **arguments: Any) -> str:
        """The text of one answer; tools that are not listed run through `execute_tool`."""
        if name not in self.listed:
            name, arguments = "execute_tool", {"name": name, "arguments": arguments}
        else:
            advertised = self.listed[name]["inputSchema"].get("properties", {})
            arguments = {key: value for key, value in arguments.items() if key in advertised}
        self.calls += 1
        try:
            result = await self.client.call_tool(name, arguments)
        except MCPError as error:
            text, self.value, self.is_error = f"{error} {error.data or ''}", None, True
        else:
            text = "\n".join(getattr(block, "text", "") for block in result.content)
            self.value, self.is_error = result.structured_content, bool(result.is_error)
        self.text += len(text)
        self.structured += len(compact(self.value)) if self.value is not None else len(text)
        self.read += text
        return text

    def first_chunk(self) -> str:
        """The id of the best passage of the last search, from either form of the answer."""
        if self.value:
            return self.value["results"][0]["id"]
        return re.findall(r"\bid ([0-9a-f]{8})", self.read)[0]

    def knows(self, *patterns: str) -> bool:
        """Whether what was read holds every one of the patterns."""
        return all(re.search(pattern, self.read, re.S) for pattern in patterns)


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# ---------------------------------------------------------------- the tasks


async def rate_limits(a: Assistant) -> bool:
    await a.call("search", query="what does the API answer when a caller sends too many requests (rate limit)")
    return a.knows(r"429|RateLimitExceeded|retry")


async def read_around(a: Assistant) -> bool:
    await a.call("search", query="automatic promotion is switched off on purpose", limit=3)
    await a.call("get_context", chunkId=a.first_chunk(), window=4)
    return a.knows(r"[Pp]romotion")


async def two_facts(a: Assistant) -> bool:
    await a.call("search", query="washing machine F15 float switch and its warranty")
    return a.knows(r"float switch", r"[Ww]arranty")


async def not_there(a: Assistant) -> bool:
    await a.call("search", query="how many kilograms does the boiler weigh")
    return a.knows(r"[Ll]ow ?[Cc]onfidence") or not a.knows(r"\d+ ?kg\b.{0,40}boiler")


async def quarter(a: Assistant) -> bool:
    await a.call("search", query="result of the quarterly restore rehearsal")
    return a.knows(r"38 minutes")


async def incident(a: Assistant) -> bool:
    await a.call("search", query="INC-2214 cause and when it must be reviewed")
    return a.knows(r"certificate")


async def last_change(a: Assistant) -> bool:
    edited = a.folder / "certificates" / "wiki-certificate.md"
    edited.write_text(edited.read_text() + "\n## Note\n\nThe wiki moved to the new rack this morning.\n")
    await a.call("refresh")
    text = await a.call("list_sources", limit=5, order="changed")
    first = text[: text.find("NEWS")] if "NEWS" in text else text
    return "wiki-certificate" in first


async def all_about(a: Assistant) -> bool:
    await a.call("search", query="documents about renewing a certificate", limit=20, groupBy="document")
    return len(set(re.findall(r"certificates/(\w+)-certificate\.md", a.read))) >= 7


async def add_file(a: Assistant) -> bool:
    (a.folder / "certificates" / "router.md").write_text("# Router\n\nThe router's serial number is RX-77120.\n")
    await a.call("tool_search", query="add a file to the documents", max_results=3, detail="brief")
    await a.call("add_path", path=str(a.folder / "certificates" / "router.md"))
    await a.call("search", query="serial number of the router", limit=3)
    return a.knows(r"RX-77120")


async def verify(a: Assistant) -> bool:
    await a.call("verify_citation", quote="Automatic promotion is switched off on purpose.")
    await a.call("verify_citation", quote="Automatic promotion is off on purpose.")
    return a.knows(r"exact|as quoted", r"absent|[Nn]earest")


async def rules(a: Assistant) -> bool:
    await a.call("getRelevantRules", taskDescription="write a migration that drops a column")
    await a.call("rememberDeveloperInstruction", instruction="Always use snake_case in SQL.", context="databases")
    return a.knows(r"transaction|column")


async def quick_start(a: Assistant) -> bool:
    await a.call("searchQuickstarts", displayName="conect claude desktop", limit=3)
    await a.call("searchQuickstarts", displayName="desktop claude connect", limit=3)
    return a.knows(r"Claude Desktop")


async def other_tools(a: Assistant) -> bool:
    await a.call("tool_search", query="count the words of a text", max_results=3, detail="brief")
    return a.knows(r"[Cc]ount")


async def compare(a: Assistant) -> bool:
    await a.call("get_document", sourceId="contributi.md")
    await a.call("get_document", sourceId="contributi-edizione-precedente.md")
    return a.knows(r"contribut")


async def mistakes(a: Assistant) -> bool:
    outcomes: list[bool] = []
    for name, arguments, expected in (
        ("search", {"query": "boiler", "sourceType": "markdown"}, "docs"),
        ("search", {"query": "boiler", "pathPrefix": str(a.folder / "sample" / "offices")}, "office"),
        ("search", {"query": "boiler", "collection": "defalt"}, "default"),
        ("get_document", {"sourceId": "NEWS"}, "project-8"),
        ("get_document", {"sourceId": "nothing-of-that-name"}, "nothing-of-that-name"),
        ("get_context", {"chunkId": "00000000"}, "00000000"),
        ("remove_document", {"sourceId": "NEWS"}, "remove_source"),
        ("insert_file", {"path": "/x"}, "add_path"),
    ):
        text = await a.call(name, **arguments)
        outcomes.append(expected in text)
    return all(outcomes)


async def summarize(a: Assistant) -> bool:
    text = await a.call("get_document", sourceId="handbook.md", outline=True, maxChars=8000)
    if len(text) > 8_500:
        return False
    text = await a.call("get_document", sourceId="handbook.md", lines="500-530", maxChars=8000)
    return len(text) <= 8_500 and a.knows(r"Station 1\d\d")


async def remove_and_restore(a: Assistant) -> bool:
    path = str(a.folder / "project-3" / "NEWS")
    await a.call("remove_source", path=path)
    await a.call("list_trash")
    await a.call("restore_source", path=path)
    return not a.is_error and a.knows(r"NEWS")


TASKS: tuple[Callable[[Assistant], Awaitable[bool]], ...] = (
    rate_limits, read_around, two_facts, not_there, quarter, incident, last_change, all_about, add_file, verify, rules,
    quick_start, other_tools, compare, mistakes, summarize, remove_and_restore,
)  # fmt: skip


# ---------------------------------------------------------------- running


def environment(workdir: Path) -> dict[str, str]:
    own = {f"LOCALMCP_{name}_DIR": str(workdir / name.lower()) for name in FOLDERS}
    return {**os.environ, **own, "LOCALMCP_DB": str(workdir / "tasks.db"), "LOCALMCP_REFRESH_SECONDS": "0"}


def prepare(python: str, workdir: Path) -> Path:
    """A fresh library, embedded once and copied at later runs; returns the folder of its documents."""
    folder, prepared = workdir / "documents", workdir / "prepared.db"
    for name in ("documents", "data", "config", "state", "tasks.db", "tasks.db-wal", "tasks.db-shm"):
        path = workdir / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    folder.mkdir(parents=True)
    write_documents(folder)
    if prepared.exists():
        shutil.copy(prepared, workdir / "tasks.db")
        adopt = [python, "-m", "localmcp", "adopt", str(workdir / "tasks.db")]
        if subprocess.run([*adopt, "--keep-watched-folders"], env=environment(workdir)).returncode == 2:
            subprocess.run(adopt, env=environment(workdir))
        return folder
    for arguments in (
        ["add", str(folder)],
        ["rules", "import", str(ROOT / "sample_data" / "rules" / "CLAUDE.md")],
        ["quickstarts", "import", str(ROOT / "sample_data" / "quickstarts")],
    ):
        run = subprocess.run(
            [python, "-m", "localmcp", *arguments], env=environment(workdir), capture_output=True, text=True
        )
        if run.returncode:
            sys.exit(f"{' '.join(arguments)}: {run.stderr or run.stdout}")
    shutil.copy(workdir / "tasks.db", prepared)
    return folder


async def measure(python: str, workdir: Path, client_name: str) -> dict[str, Any]:
    folder = prepare(python, workdir)
    parameters = StdioServerParameters(
        command=python, args=["-m", "localmcp", "serve"], env=environment(workdir), cwd=folder
    )
    async with Client(parameters, client_info=Implementation(name=client_name, version="1")) as client:
        listed = [each.model_dump(by_alias=True, exclude_none=True) for each in (await client.list_tools()).tools]
        tools = {each["name"]: each for each in listed}
        await client.call_tool("search", {"query": "warm up"})
        answers = {name: await measure_answer(client, tools, folder, name) for name in TEN_TOOLS}
        tasks = [await run_task(client, tools, folder, task) for task in TASKS]
        return {
            "tools/list": len(json.dumps({"tools": listed})),
            "instructions": len(client.instructions or ""),
            "tasks": tasks,
            "text": sum(each["text"] for each in tasks),
            "structured": sum(each["structured"] for each in tasks),
            "failed": [each["name"] for each in tasks if not each["solved"]],
            "answers": answers,
            "share": await passage_share(client),
        }


async def run_task(client: Client, tools: dict[str, Any], folder: Path, task: Any) -> dict[str, Any]:
    assistant = Assistant(client, tools, folder)
    try:
        solved = bool(await task(assistant))
    except (LookupError, MCPError, RuntimeError) as error:
        print(f"{task.__name__}: {error!r}", file=sys.stderr)
        solved = False
    counts = {"calls": assistant.calls, "text": assistant.text, "structured": assistant.structured}
    return {"name": task.__name__, **counts, "solved": solved}


async def measure_answer(client: Client, tools: dict[str, Any], folder: Path, name: str) -> dict[str, int]:
    assistant = Assistant(client, tools, folder)
    arguments = TEN_TOOLS[name]
    if name == "get_context":
        await assistant.call("search", query="boiler E110", limit=1)
        arguments = {"chunkId": assistant.first_chunk()}
        assistant.text = assistant.structured = 0
    await assistant.call(name, **arguments)
    return {"text": assistant.text, "structured": assistant.structured}


async def passage_share(client: Client) -> dict[str, float]:
    """How many characters a search costs for each character of its passages, median over queries."""
    shares: dict[str, list[float]] = {"text": [], "structured": []}
    path = ROOT / "sample_data" / "queries.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines()[::3]:
        result = await client.call_tool("search", {"query": json.loads(line)["query"]})
        if not result.structured_content or not result.structured_content["results"]:
            continue
        passages = sum(len(hit["content"]) for hit in result.structured_content["results"])
        shares["text"].append(len(result.content[0].text) / passages)  # pyright: ignore
        shares["structured"].append(len(compact(result.structured_content)) / passages)
    return {key: round(statistics.median(values), 3) for key, values in shares.items() if values}


def show(result: dict[str, Any]) -> None:
    for each in result["tasks"]:
        mark = "" if each["solved"] else "  FAILED"
        print(f"{each['name']:20} {each['calls']:3} calls {each['text']:8} {each['structured']:8}{mark}")
    for name, counts in result["answers"].items():
        print(f"  {name:20} {counts['text']:8} {counts['structured']:8}")
    print({key: value for key, value in result.items() if key not in ("tasks", "answers")})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--client", default="benchmark", help="name that the client gives of itself")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = anyio.run(measure, options.python, options.workdir, options.client)
    show(result)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
