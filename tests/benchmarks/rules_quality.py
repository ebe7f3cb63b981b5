"""How well rules are found: best rule among the first five, precision, and silence where no rule fits.

    python tests/benchmarks/rules_quality.py [--set SET] [--half dev|held-out|all] [--show] [--model MODEL]
    python tests/benchmarks/rules_quality.py --calibrate           fit the slopes with both models, print them
    python tests/benchmarks/rules_quality.py --ship --model default|multilingual     vectors that the package holds

The rules of `sample_data/rules/` are imported as everybody imports them, and the judged tasks of `tasks.jsonl`
asked with the defaults. A task names its best rules and the others that are relevant by how they begin; a third of the
tasks has none. `--calibrate` fits the slopes of the one gate on the sets `FITTED`, so only the others are a
blind test; judge by rules and tasks of your own. `rules_pairs.txt` holds rules of all kinds of work, each with its
topic and four tasks, by a writer who had seen none of these sets.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localmcp.config import Settings, packaged_data, sample_directory
from localmcp.rules.finder import EVERYDAY, MOST_COMPARED, Task, asks_for_a_fact, requests_without_rules
from localmcp.rules.rulebook import Selection, load_vectors, select_rules
from localmcp.workspace import Workspace

HERE = Path(__file__).parent
SETS = (
    "samples", "fresh", "final", "unseen", "contexts", "languages", "sixth", "seventh", "eighth", "ninth", "tenth",
    "eleventh",
)  # fmt: skip
"""`fresh`: data, mobile, infrastructure, writing; `final`: embedded, games, support, accounts, film, laboratory,
databases, translation, events; `unseen`: teaching, contracts, recruiting, news, stock, maps, sound, studies, donations,
building. All with tasks in users' words; `contexts`: `final` with rules
that say when they matter, written without its tasks. `languages`: tasks of `final` in Italian, Spanish, German and
Portuguese, for its English rules. `sixth`: data, mobile, infrastructure and writing again, other rules and tasks.
`seventh`: on call, simulation, accessibility, spreadsheets, models, open source, mailings; written after this file was
read, before the code of the search and the other sets.
`eighth`: shop, shell, browser, network, printed parts, travel, prompts, kitchen, archives, drones; a third of the tasks
in the words of somebody who chats, half of those without a rule in the words of these kinds of work. Written after
the code of the gate was read, before any set was measured.
`ninth`: parsers, pay, claims, exhibitions, nursery, slides, chat bots, pictures, a hotel, old programs; a third of the
tasks without a rule in the words of everybody, the others in those of these kinds of work. Written after the code of
the search was read, before any set was measured.
`tenth`: circuits, appointments, ranking, sign-in, desktop programs, a veterinarian, a choir, bicycles, a town office,
posts; a third of the tasks in the words of somebody who chats, of those without a rule half in the words of these kinds
of work. Written after the code of the gate and the ninth set were read, before any set was measured; a table of
four forms of the gate was read for it and `ninth` before the last form was chosen by the other sets.
`eleventh`: experiments, video calls, a greenhouse, books, sewing patterns, meters, a stage, patents, training, queues,
flats, a forum; a third of the tasks without a rule, half of these in the words of these kinds of work. Written after
the code was read, before any ranking was seen; then `ninth` and `tenth` got `equal`: rules that a reader of all rules
of the set, who saw no ranking, held for as right as the best one."""


@dataclass(frozen=True)
class Judged:
    """A task, the ids of the rules that fit it best, and of all that are relevant."""

    text: str
    best: frozenset[int]
    right: frozenset[int]
    """The best, and those that are as right."""
    relevant: frozenset[int]
    half: str


def import_rules(workspace: Workspace, name: str) -> None:
    name = "final" if name == "languages" else name
    folder = sample_directory() / "rules"
    samples = [folder, folder / "team-rules.jsonl", folder / "checklist.md"]
    for path in samples if name == "samples" else [HERE / f"rules_{name}.jsonl"]:
        report = workspace.rules.import_rules(str(path))
        assert not report["skipped"], report["skipped"]


def read_tasks(workspace: Workspace, half: str, name: str = "samples") -> list[Judged]:
    with workspace.database.read() as connection:
        rules = {rule.rule_text: rule.id for rule in select_rules(connection, Selection())}

    def find(start: str) -> int:
        found = [rule_id for text, rule_id in rules.items() if text.startswith(start)]
        assert len(found) == 1, f"'{start}' begins {len(found)} rules"
        return found[0]

    samples = sample_directory() / "rules" / "tasks.jsonl"
    path = samples if name == "samples" else HERE / f"rules_{'final' if name == 'contexts' else name}_tasks.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    tasks = [json.loads(line) for line in lines]
    return [
        Judged(
            each["task"],
            frozenset(map(find, each["best"])),
            frozenset(map(find, each["best"] + each.get("equal", []))),
            frozenset(map(find, each["best"] + each.get("equal", []) + each["relevant"])),
            each["half"],
        )
        for each in tasks
        if half in ("all", each["half"])
    ]


# ---------------------------------------------------------------- measuring


def measure(workspace: Workspace, tasks: list[Judged], show: bool = False) -> dict[str, float]:
    """With the defaults of `getRelevantRules`: shares of tasks, and precision over all returned rules."""
    hits, equal_hits, silent, right, returned = [], [], [], 0, 0
    for task in tasks:
        rules = workspace.rule_finder.get_relevant_rules(task.text)["rules"]
        ids = [rule["id"] for rule in rules]
        if task.best:
            hits.append(bool(task.best.intersection(ids)))
            equal_hits.append(bool(task.right.intersection(ids)))
            right += len(task.relevant.intersection(ids))
            returned += len(ids)
        else:
            silent.append(not ids)
        if show:
            show_task(task, rules)
    return {
        "tasks": len(tasks),
        "best among five": statistics.fmean(hits),
        "best or equal": statistics.fmean(equal_hits),
        "precision": right / max(1, returned),
        "returned a task": returned / max(1, len(hits)),
        "silent where nothing fits": statistics.fmean(silent),
    }


def show_task(task: Judged, rules: list[dict[str, Any]]) -> None:
    found = bool(task.best.intersection(rule["id"] for rule in rules)) if task.best else not rules
    print(f"{'ok ' if found else 'BAD'} {task.text}")
    for rule in rules:
        mark = "*" if rule["id"] in task.best else "+" if rule["id"] in task.relevant else "-"
        print(f"      {mark} {rule['relevance_score']:.2f} {rule['rule_text'][:70]} ({'; '.join(rule['why'])[:90]})")


# ---------------------------------------------------------------- calibrating


def signs_of(workspace: Workspace, tasks: list[Judged]) -> list[tuple[list[float], bool]]:
    """Return three signs of each task, less the mean of everyday requests, and whether any rule fits it."""
    finder, seen = workspace.rule_finder, []
    everyday = finder.everyday()
    with workspace.database.read() as connection:
        rows = load_vectors(connection, everyday.requests.shape[1])[1][-MOST_COMPARED:]
    usual = everyday.likeness(rows, everyday.requests.T).max(axis=0).mean()
    for task in tasks:
        embedded = Task(task.text, workspace.embedder)
        with workspace.database.read() as connection:
            matches = finder.match(connection, embedded, Selection())
        best = max(match.likeness for match in matches) - usual
        nearness = everyday.reluctance((everyday.requests @ embedded.vector)[None], False)[0] / EVERYDAY
        seen.append(([best, -nearness, -float(asks_for_a_fact(task.text))], bool(task.best)))
    return seen


FITTED = ("samples", "fresh", "final", "unseen", "contexts", "sixth", "seventh", "eighth")


def fit_gate(seen: list[tuple[list[float], bool]]) -> list[float]:
    """Return the slopes of a logistic regression of three signs: `BEST`, `EVERYDAY`, `QUESTION`."""
    import numpy as np

    signs, fits = np.array([row for row, _ in seen]), np.array([fits for _, fits in seen])
    spread = np.maximum(signs.std(axis=0), 1e-6)
    slopes = logistic_slopes((signs - signs.mean(axis=0)) / spread, fits, ridge=1.0) / spread
    return [round(float(number), 2) for number in slopes]


def logistic_slopes(x: Any, fits: Any, ridge: float) -> Any:
    """Slopes of the logistic regression of `fits` on the columns of `x`; both outcomes weigh as much as all rows."""
    import numpy as np

    x = np.hstack([x, np.ones((len(x), 1))])
    weight = np.where(fits, 0.5 / fits.mean(), 0.5 / (1 - fits.mean()))
    penalty, slopes = np.diag([ridge] * (x.shape[1] - 1) + [1e-6]), np.zeros(x.shape[1])
    for _ in range(10):
        p = 1 / (1 + np.exp(-x @ slopes))
        hessian = (x * (weight * p * (1 - p))[:, None]).T @ x + penalty
        slopes -= np.linalg.solve(hessian, x.T @ (weight * (p - fits)) + penalty @ slopes)
    return slopes[:-1]


def read_pairs(workspace: Workspace) -> tuple[Any, Any]:
    """Return the rules of `rules_pairs.txt` and the mean of the tasks of each, as they will be shipped."""
    import numpy as np

    embedder = workspace.embedder.get()
    lines = (HERE / "rules_pairs.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split(" | ")[1:] for line in lines]
    tasks = [np.mean([embedder.embed_query(task) for task in tasks], axis=0) for _, *tasks in pairs]
    rules = embedder.embed_passages([rule for rule, *_ in pairs])
    return few_levels(rules), few_levels(_unit(np.array(tasks)))


def _unit(rows: Any) -> Any:
    import numpy as np

    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def calibrate(folder: Path) -> list[float]:
    """Fit the numbers of the gate on all tasks of the sets that do not judge it, with both models of the package."""
    seen: list[tuple[list[float], bool]] = []
    for model in ("default", "multilingual"):
        for name in FITTED:
            file = folder / f"calibration-{model}-{name}.localmcp"
            with Workspace(Settings(database=file, model=model)) as workspace:
                import_rules(workspace, name)
                seen += signs_of(workspace, read_tasks(workspace, "all", name))
    return fit_gate(seen)


def whole_numbers(rows: Any) -> Any:
    """Unit rows as -127 to 127, which take a quarter of the room; cosines move by less than 0.002."""
    import numpy as np

    return np.rint(rows / np.abs(rows).max(axis=1, keepdims=True) * 127).astype(np.int8)


def few_levels(rows: Any) -> Any:
    """Unit rows as -4 to 4, a tenth of the room: cosines move by .02, and of no set does the ranking lose."""
    import numpy as np

    return np.clip(np.rint(rows / (0.6 * np.abs(rows).mean(axis=1, keepdims=True))), -4, 4).astype(np.int8)


def main() -> None:
    import numpy as np

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=["dev", "held-out", "all"], default="all")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--set", choices=SETS, default="samples", dest="tasks")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--ship", action="store_true", help="keep the vectors of --model in the package")
    parser.add_argument("--model", default="default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ.setdefault("LOCALMCP_STATE_DIR", name)
        if options.calibrate:
            print(calibrate(Path(name)))
            return
        with Workspace(Settings(database=Path(name) / "rules.localmcp", model=options.model)) as workspace:
            if options.ship:
                embedder = workspace.embedder.get()
                pairs = read_pairs(workspace) if options.model == "default" else ()
                requests = whole_numbers(embedder.embed_passages(requests_without_rules()))
                np.savez_compressed(
                    packaged_data() / f"rules_{options.model}.npz", fingerprint=embedder.identity.fingerprint,
                    requests=requests, **dict(zip(("rules", "tasks"), pairs, strict=False)),
                )  # fmt: skip
                return
            import_rules(workspace, options.tasks)
            both = options.half == "all" and options.tasks in ("samples", "fresh")
            halves = ["dev", "held-out"] if both else [options.half]
            found = {
                half: measure(workspace, read_tasks(workspace, half, options.tasks), options.show) for half in halves
            }
            for half, numbers in found.items():
                print(f"{half:9}", *(f"{name} {value:.3g}" for name, value in numbers.items()), sep="  ")
            if options.json:
                options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
