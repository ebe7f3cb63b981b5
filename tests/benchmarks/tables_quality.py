"""Answers from tables: 120 questions over 40 files, 20 that they cannot answer, statements that must not get through.

    python tests/benchmarks/tables_quality.py --workdir DIR build
    python tests/benchmarks/tables_quality.py --workdir DIR score ANSWERS.jsonl
    python tests/benchmarks/tables_quality.py --workdir DIR fuzz [--count 5000]
    python tests/benchmarks/tables_quality.py --workdir DIR speed

`build` makes the library. Somebody who knows `list_tables` and the questions of `tables/questions.jsonl` writes a line
`{"question": ..., "sql": ...}` for each, or `"sql": null` for what the tables cannot tell; `score` runs them.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

from localmcp.config import Settings
from localmcp.errors import LocalMCPError
from localmcp.workspace import Workspace

HERE = Path(__file__).parent / "tables"
WORDS = (
    "select * from meter_readings where union all order by limit 5 count(*) sum(units) group district ( ) , ; -- /* */ "
    "insert into update delete drop table create attach database 'x' pragma vacuum with recursive n as values 1 "
    "sqlite_schema sqlite_master pragma_table_list load_extension('x') zeroblob(1000000000) randomblob(9999999) hex( "
    "like '%a%a%a%a%b' glob '*a*a*b' char(0) \" ' main. temp. sources chunks api_keys join on natural is not null "
    "printf('%9999999d',1) group_concat(district) contains(district,'north') levenshtein(district,'x') rowid -1 e9"
).split(" ")


def questions() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / "questions.jsonl").read_text(encoding="utf-8").splitlines()]


def is_right(expected: Any, result: dict[str, Any]) -> bool:
    """Whether one of the first row's values is the answer."""
    row = result["rows"][0] if result["rows"] else [None]
    for value in row:
        if isinstance(expected, int | float) and isinstance(value, int | float):
            if abs(value - expected) <= max(0.011, abs(expected) * 1e-6):
                return True
        elif str(value).casefold() == str(expected).casefold():
            return True
    return False


def score(workspace: Workspace, answers: Path) -> None:
    written = {each["question"]: each.get("sql") for each in map(json.loads, answers.read_text("utf-8").splitlines())}
    outcomes: Counter[tuple[str, str]] = Counter()
    for question in questions():
        sql, kind = written.get(question["question"]), question["kind"]
        outcome = "not answered"
        if sql:
            try:
                result = workspace.registry.call("query_table", {"sql": sql}).value
                has_answer = question["answer"] is not None
                outcome = "right" if has_answer and is_right(question["answer"], result) else "wrong"
                if outcome == "wrong":
                    print("WRONG", question, sql, result["rows"][:2], result.get("notices"), sep="\n    ")
            except LocalMCPError as error:
                outcome = "refused"
                print("REFUSED", question["question"], sql, error, sep="\n    ")
        outcomes[kind, outcome] += 1
    for (kind, outcome), count in sorted(outcomes.items()):
        print(f"{kind:14}{outcome:14}{count}")
    right = sum(count for (kind, outcome), count in outcomes.items() if outcome == "right")
    wrong = sum(count for (_, outcome), count in outcomes.items() if outcome == "wrong")
    print(f"right {right} of 120, wrong without a warning {wrong} of 140")


def fuzz(workspace: Workspace, count: int, seed: int) -> None:
    """Every statement gives rows or one clear error, within its time; nothing of the file or the disk is touched."""
    chance, problems = random.Random(seed), 0
    before = workspace.database.path.stat()
    slowest = 0.0
    for _ in range(count):
        sql = " ".join(chance.choices(WORDS, k=chance.randint(2, 14)))
        if chance.random() < 0.5:
            sql = f"select {sql}"
        start = time.perf_counter()
        try:
            result = workspace.registry.call("query_table", {"sql": f"{sql} /* meter_readings */"}).value
            if any("create table" in str(row).lower() for row in result["rows"]):
                problems += 1
                print("schema told:", sql)
        except LocalMCPError:
            pass
        except Exception as error:
            problems += 1
            print(f"{type(error).__name__}: {error}: {sql}")
        slowest = max(slowest, time.perf_counter() - start)
    after = workspace.database.path.stat()
    problems += (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size)
    print(f"{count} statements, {problems} problems, the slowest {slowest:.1f} s")


def speed(workspace: Workspace) -> None:
    def ask(sql: str) -> float:
        start = time.perf_counter()
        workspace.registry.call("query_table", {"sql": sql})
        return 1000 * (time.perf_counter() - start)

    print(f"first question to 50,000 rows {ask('select count(*) from meter_readings'):.0f} ms")
    districts = ("north", "south", "east", "west")
    times = [
        ask(f"select sum(units), max(cost) from meter_readings where district = '{districts[n % 4]}' and units > {n}")
        for n in range(60)
    ]
    print(f"later ones p50 {statistics.median(times):.1f} ms, p95 {statistics.quantiles(times, n=20)[-1]:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("what", choices=["build", "score", "fuzz", "speed"])
    parser.add_argument("answers", type=Path, nargs="?")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.workdir.mkdir(parents=True, exist_ok=True)
    settings = Settings(database=options.workdir / "tables.localmcp", model="hash", log_calls="none")
    with Workspace(settings) as workspace:
        if options.what == "build":
            workspace.library.add_paths([HERE / "files"])
            listed = workspace.registry.call("list_tables", {"limit": 100}).value
            (options.workdir / "list_tables.json").write_text(json.dumps(listed, ensure_ascii=False, indent=1), "utf-8")
        elif options.what == "score":
            score(workspace, options.answers)
        elif options.what == "fuzz":
            fuzz(workspace, options.count, options.seed)
        else:
            speed(workspace)


if __name__ == "__main__":
    main()
