"""How well sentences become tool calls: right tool, right arguments, false calls, time.

    python tests/benchmarks/router_quality.py
        [--half dev|held|third|fourth|fifth] [--arguments] [--misses] [--json FILE] [--fit]

`router_sentences.jsonl` holds sentences, each with the tool that it means (null: none can serve it) and every set of
arguments that would be right. The weights were fitted to the half `dev` (`--fit` prints them anew); the half `held` was
written before and fitted to nothing; `third` came later, of sentences that had gone wrong and others like them;
`fourth` was written from the tools' descriptions alone, `fifth` in people's words, and nothing is fitted to either.
Letter case does not count in arguments. A sentence that no tool can serve counts as a false call if anything was run or
proposed for it.

`argument_sentences.jsonl` (`--arguments`) holds sentences for one tool each, of ours and of the catalogs of
`discovery_quality.py`, with every set of arguments that would be right. In many of them a required value is not said:
the parameter must be left open, whatever other words there are. The half `first` was written before anything was built
for it, the half `second` after that and before it was tried.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SENTENCES = Path(__file__).with_name("router_sentences.jsonl")
ARGUMENT_SENTENCES = Path(__file__).with_name("argument_sentences.jsonl")
LEARNING_RATE, STEPS, PENALTY = 0.05, 1500, 0.002
UNSEEN_WEIGHT, UNSERVABLE_WEIGHT = 0.6, 1.5
"""In fitting: of a sentence whose best phrases were hidden, and of one that no tool serves."""


def read_sentences(half: str | None) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if half in (None, row["half"])]


def folded(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(folded(each) for each in value)
    if isinstance(value, dict):
        return {key: folded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [folded(each) for each in value]
    return value.casefold().strip() if isinstance(value, str) else value


def open_workspace(folder: Path) -> Any:
    """A new file with the sample quick starts, its model loaded and every tool embedded."""
    os.environ |= {"LOCALMCP_STATE_DIR": str(folder / "state"), "LOCALMCP_CONFIG_DIR": str(folder / "config")}
    from localmcp.config import load_settings, sample_directory
    from localmcp.workspace import Workspace

    workspace = Workspace(load_settings(database=folder / "router.localmcp"))
    quickstarts = sample_directory() / "quickstarts"
    if quickstarts.is_dir() and any(quickstarts.iterdir()):
        workspace.registry.call("importQuickstarts", {"path": str(quickstarts)})
    workspace.router.rank("begin")
    return workspace


def measure(workspace: Any, rows: list[dict[str, Any]]) -> tuple[dict[str, float], list[str]]:
    """The figures, and one line for each sentence that went wrong."""
    existing = {each.name for each in workspace.registry.tools()}
    rows = [row for row in rows if row["tool"] is None or row["tool"] in existing]
    servable = right_tool = right_arguments = false_calls = 0
    took, misses = [], []
    for row in rows:
        start = time.perf_counter()
        ranking = workspace.router.rank(row["sentence"])
        decision = workspace.router.decide(ranking, {})
        took.append(1000 * (time.perf_counter() - start))
        if row["tool"] is None:
            response = workspace.router.ask(row["sentence"])
            if response["status"] != "no_tool_call" or "proposed" in response:
                false_calls += 1
                misses.append(f"FALSE CALL  {row['sentence']} -> {response}")
            continue
        servable += 1
        if decision.tool is None or decision.tool.name != row["tool"]:
            nearest = [(each.tool.name, round(each.certainty, 2)) for each in ranking.tools[:3]]
            misses.append(f"TOOL  {row['sentence']} -> {nearest}, wanted {row['tool']}; {decision.refusal}")
            continue
        right_tool += 1
        if folded(decision.arguments) in folded(row["arguments"]):
            right_arguments += 1
        else:
            misses.append(f"ARGUMENTS  {row['sentence']} -> {decision.arguments}, wanted {row['arguments'][0]}")
    unservable = len(rows) - servable
    figures = {
        "sentences": len(rows),
        "servable": servable,
        "right_tool_percent": 100 * right_tool / max(1, servable),
        "right_arguments_percent": 100 * right_arguments / max(1, right_tool),
        "unservable": unservable,
        "false_calls_percent": 100 * false_calls / max(1, unservable),
        "median_ms": statistics.median(took),
        "p95_ms": statistics.quantiles(took, n=20)[-1],
    }
    return figures, misses


# ---------------------------------------------------------------- arguments of a tool that is known


def measure_arguments(workspace: Any, half: str) -> tuple[dict[str, float], list[str]]:
    """Shares of the sentences whose arguments are all right: of those that say every required value, and of those that
    do not; and of all sentences, those for which some value was made up."""
    from discovery_quality import Listed, read_tools

    from localmcp.tool_search.ask import fill_arguments
    from localmcp.tool_search.sentence_ranking import rank_tools

    lines = ARGUMENT_SENTENCES.read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["half"] == half]
    tools = {tool.name: tool for tool in workspace.registry.tools()}
    for catalog in {row["catalog"] for row in rows} - {"localmcp"}:
        tools |= {entry["name"]: Listed(entry) for entry in read_tools(catalog)}
    rows = [row for row in rows if row["tool"] in tools]
    full: list[bool] = []
    open_rows: list[bool] = []
    misses, made_up = [], 0
    for row in rows:
        tool = tools[row["tool"]]
        ranking = rank_tools(row["sentence"], [tool], workspace.discovery, with_model=False)
        arguments = fill_arguments(ranking.sentence, ranking.tokens, ranking.tools[0], {})[0]
        right = folded(arguments) in folded(row["arguments"])
        is_open = set(tool.input_schema.get("required", ())) > set(row["arguments"][0])
        (open_rows if is_open else full).append(right)
        pairs = [folded(pair) for expected in row["arguments"] for pair in expected.items()]
        made_up += any(folded(pair) not in pairs for pair in arguments.items())
        if not right:
            misses.append(f"ARGUMENTS  {row['tool']}: {row['sentence']} -> {arguments}, wanted {row['arguments'][0]}")
    figures = {
        "sentences": len(rows),
        "all_said": len(full),
        "all_said_right_percent": 100 * sum(full) / len(full),
        "some_open": len(open_rows),
        "some_open_right_percent": 100 * sum(open_rows) / len(open_rows),
        "made_up_percent": 100 * made_up / len(rows),
    }
    return figures, misses


# ---------------------------------------------------------------- fitting


def training_sets(workspace: Any, rows: list[dict[str, Any]], with_model: bool) -> Iterator[tuple[Any, int, float]]:
    """(features of every tool, place of the right one or -1, weight) of each sentence.

    A servable sentence comes twice, the second time with the phrases hidden that it says, as an author who thought of
    other phrases would have left it.
    """
    import numpy as np

    from localmcp.tool_search.sentence_ranking import rank_tools

    tools = {each.tool.name: each.tool for each in workspace.router.rank("begin").tools}
    for row in rows:
        for hidden in (False, True) if row["tool"] in tools else (False,):
            kept = None
            if hidden:
                each = tools[row["tool"]]
                kept = each.mark
                each.mark = dataclasses.replace(kept, examples=_not_said(each, row["sentence"]))
                each.described = None
            ranked = rank_tools(row["sentence"], tools.values(), workspace.discovery, with_model=with_model).tools
            place = next((n for n, one in enumerate(ranked) if one.tool.name == row["tool"]), -1)
            weight = UNSEEN_WEIGHT if hidden else UNSERVABLE_WEIGHT if place < 0 else 1.0
            yield np.array([one.evidence for one in ranked]), place, weight
            if kept is not None:
                tools[row["tool"]].mark, tools[row["tool"]].described = kept, None


def _not_said(tool: Any, sentence: str) -> tuple[str, ...]:
    from localmcp.tool_search.sentence_ranking import match_phrase, parse_phrase
    from localmcp.tool_search.words import tokenize

    tokens, properties = tokenize(sentence), tool.input_schema.get("properties", {})
    matches = [match_phrase(parse_phrase(text), tokens, properties) for text in tool.mark.examples]
    return tuple(t for t, match in zip(tool.mark.examples, matches, strict=True) if not match or match.score < 0.72)


def fit(sets: list[tuple[Any, int, float]], count: int) -> Any:
    """Weights of a softmax over the tools and "none of them" (log odds 0), by Adam on the first `count` features."""
    import numpy as np

    weights, mean, square = np.zeros(count), np.zeros(count), np.zeros(count)
    penalised = np.r_[0, np.ones(count - 1)]
    for step in range(1, STEPS + 1):
        gradient = PENALTY * weights * penalised
        for features, place, weight in sets:
            rows = features[:, :count]
            odds = np.exp(np.clip(rows @ weights, -50, 50))
            share = odds / (1 + odds.sum())
            if place >= 0:
                share[place] -= 1
            gradient += weight * (rows.T @ share) / len(sets)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        unbiased = mean / (1 - 0.9**step), square / (1 - 0.99**step)
        weights -= LEARNING_RATE * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
    return weights


def print_weights(workspace: Any) -> None:
    from localmcp.tool_search.sentence_ranking import EVIDENCE

    for name, patience in (("WITH_MODEL", True), ("WITHOUT_MODEL", False)):
        sets = list(training_sets(workspace, read_sentences("dev"), patience))
        print(name, "=", tuple(round(float(value), 2) for value in fit(sets, len(EVIDENCE))), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("dev", "held", "third", "fourth", "fifth"))
    parser.add_argument("--arguments", action="store_true", help="only those of `argument_sentences.jsonl`")
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    result = {}
    with tempfile.TemporaryDirectory() as folder, open_workspace(Path(folder)) as workspace:
        if options.fit:
            print_weights(workspace)
            return
        halves = [options.half] if options.half else ["dev", "held", "third", "fourth", "fifth"]
        for half in ["first", "second"] if options.arguments else halves:
            figures, misses = (
                measure_arguments(workspace, half) if options.arguments else measure(workspace, read_sentences(half))
            )
            result[half] = figures
            print(half, *(f"{name} {value:.1f}" for name, value in figures.items()), sep="\n  ")
            if options.misses:
                print("\n".join(misses))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
