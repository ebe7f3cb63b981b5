"""The measured numbers as one Markdown table, peers beside ours; what a peer does better is in it as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = tuple[str, str, str, str]
"""What was measured, ours, the peers', a remark."""


def write_report(numbers: dict[str, Any]) -> str:
    """Machine, versions and date, then the table; parts that did not run are named below it."""
    rows: list[Row] = []
    missing: list[str] = []
    for name, part in numbers["parts"].items():
        result = part["result"]
        if isinstance(result, dict) and "skipped" in result:
            missing.append(f"- {name}: {result['skipped']}")
        elif name in TOLD:
            rows += TOLD[name](result)
    machine = numbers["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    versions = [pair for each in numbers.get("peers", {}).values() for pair in each.items()]
    peers = ", ".join(f"{name} {version}" for name, version in versions)
    dates = sorted({part["date"][:10] for part in numbers["parts"].values()})
    lines = [
        "# Numbers",
        "",
        f"Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))} on {machine['processor']}, {machine['cores']} "
        f"cores{', VNNI' if machine['vnni'] else ''}; {machine['system']}; Python {machine['python']}; {packages}.",
        *([f"Peers: {peers}."] if peers else []),
        *(["", "A quick run: few rounds, small files."] if numbers.get("quick") else []),
        "",
        "| what | localmcp | others, same run | remark |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
        *(["", "Not measured:", "", *missing] if missing else []),
    ]
    return "\n".join(lines) + "\n"


def _start(result: dict[str, float]) -> list[Row]:
    python = f"python -c pass {result['python_pass_ms']:.0f} ms"
    first = f"{result['first_search_wall_s']:.2f} s"
    later = f"{result['search_p50_ms']:.1f} / {result['search_p95_ms']:.1f} ms"
    chunks = f"{result['chunks']:,} chunks, stdio, real model"
    return [
        ("spawn to initialize", f"{result['initialize_ms']:.0f} ms", python, "stdio"),
        ("first search of a process", first, "", "loads the model"),
        ("later searches, p50 / p95", later, "", f"{chunks}; {result['rss_mb']:.0f} MB resident"),
    ]


def _ingest(result: dict[str, Any]) -> list[Row]:
    floats, int8 = result["float"], result["int8"]
    return [
        (
            "passages embedded a second",
            f"{int8['passages_per_s']:.1f}",
            f"as floats {floats['passages_per_s']:.1f}",
            f"x {result['int8_over_float']:.2f}; peak {int8['peak_mb']:.0f} MB, floats {floats['peak_mb']:.0f} MB",
        )
    ]


def _search(result: list[dict[str, Any]]) -> list[Row]:
    rows: list[Row] = []
    for row in result:
        size, recall = f"{row['size']:,} chunks", f"recall@10 {row['recall']:.3f}"
        memory = f"{row['rss_mb']:.0f} MB, file {row['file_mb'] * 1e6 / row['size']:.0f} bytes a chunk"
        rows += [
            (f"hybrid, a question, {size}, p50 / p95", _times(row["sentence"]), "", f"{recall}; {memory}"),
            (f"hybrid, a misspelled word, {size}, p50 / p95", _times(row["typo"]), "", "fuzzy repair"),
        ]
    return rows


def _times(row: dict[str, float]) -> str:
    return f"{row['p50']:.1f} / {row['p95']:.1f} ms"


def _vectors(result: dict[str, dict[str, Any]]) -> list[Row]:
    rows: list[Row] = []
    for size, engines in result.items():
        ours = engines["localmcp"]
        for name, row in engines.items():
            if name == "localmcp":
                continue
            if "skipped" in row:
                rows.append(
                    (f"nearest ten of {int(size):,} vectors", _engine(ours), f"{name}: -", row["skipped"][:120])
                )
                continue
            ratio = row["p50_ms"] / ours["p50_ms"]
            remark = f"x {ratio:.1f}; {row['rss_mb']:.0f} MB against {ours['rss_mb']:.0f} MB"
            rows.append((f"nearest ten of {int(size):,} vectors", _engine(ours), f"{name} {_engine(row)}", remark))
    return rows


def _engine(row: dict[str, float]) -> str:
    return f"{row['p50_ms']:.2f} / {row['p95_ms']:.2f} ms, recall {row['recall@10']:.3f}"


def _rivals(result: dict[str, dict[str, dict[str, Any]]]) -> list[Row]:
    return [row for size, servers in result.items() for row in _servers(f"whole servers, {int(size):,} texts", servers)]


def _servers(where: str, servers: dict[str, dict[str, Any]]) -> list[Row]:
    ours = servers["localmcp"]
    if "skipped" in ours:
        return [(where, "-", "", ours["skipped"][:120])]
    measures: list[tuple[str, str, Callable[[dict[str, float]], str]]] = [
        ("spawn to initialize", "initialize_ms", lambda row: f"{row['initialize_ms']:.0f} ms"),
        ("texts taken in a second", "texts_per_s", lambda row: f"{row['texts_per_s']:.1f}"),
        ("first search", "first_search_ms", lambda row: f"{row['first_search_ms']:.0f} ms"),
        ("later searches, p50 / p95", "p50_ms", lambda row: f"{row['p50_ms']:.1f} / {row['p95_ms']:.1f} ms"),
        ("resident memory", "rss_mb", lambda row: f"{row['rss_mb']:.0f} MB"),
        ("size on disk", "file_mb", lambda row: f"{row['file_mb']:.1f} MB"),
    ]
    ran = {name: row for name, row in servers.items() if "skipped" not in row}
    rows = [
        (f"{where}: {label}", told(ours), _each_told(ran, told), "")
        for label, key, told in measures
        if all(key in row for row in ran.values())
    ]
    return rows + [(where, "-", f"{name}: -", row["skipped"][:120]) for name, row in servers.items() if name not in ran]


def _each_told(servers: dict[str, dict[str, Any]], told: Callable[[dict[str, float]], str]) -> str:
    return "; ".join(f"{name} {told(row)}" for name, row in servers.items() if name != "localmcp")


def _quality(result: dict[str, Any]) -> list[Row]:
    rows: list[Row] = []
    above = result["above_better_arm"]
    for label, row in (*result["sets"].items(), ("mean", result["mean"])):
        others = ", ".join(f"{name} {value:.3f}" for name, value in row.items() if name != "ours")
        margin = above.get(label, result["mean_above_better_arms_mean"])
        rows.append((f"nDCG@10, {label}", f"{row['ours']:.3f}", others, f"{margin:+.3f} against the better arm"))
    return rows


def _tui(result: dict[str, float]) -> list[Row]:
    """First paint, results after typing, and a page of the Library, each with its least: a busy machine adds to it."""
    size = f"{result['passages']:,.0f} passages"
    return [
        (
            "TUI: start to first paint",
            f"{result['first_paint_ms']:.0f} ms",
            "",
            f"least {result['first_paint_least_ms']:.0f} ms; {size}",
        ),
        (
            "TUI: results painted after the debounce, p50 / p95",
            f"{result['results_p50_ms']:.1f} / {result['results_p95_ms']:.1f} ms",
            "",
            f"least {result['results_least_ms']:.1f} ms, processor {result['results_cpu_p50_ms']:.1f} ms; {size}, the "
            "query embedded",
        ),
        (
            "TUI: next page of the Library, p50 / p95",
            f"{result['library_page_p50_ms']:.1f} / {result['library_page_p95_ms']:.1f} ms",
            "",
            f"least {result['library_page_least_ms']:.1f} ms; {result['documents']:,.0f} documents, "
            f"{result['library_rows_built']:.0f} rows built",
        ),
    ]


def _discovery(result: dict[str, dict[str, Any]]) -> list[Row]:
    """hit@1, hit@5 and false answers of each half beside the others', then what it costs in bytes."""
    rows: list[Row] = []
    for label, ours in result.items():
        half, _, profile = label.partition(" ")
        if profile != "best":
            continue
        others = [
            f"{name.removeprefix(half).strip()} {_hits(row)}"
            for name, row in result.items()
            if name.startswith(f"{half} ") and name != label
        ]
        remark = f"{ours['queries']} queries, of which no tool serves {ours['unservable']}"
        rows.append((f"tool search, {half}: hit@1, hit@5, false answers", _hits(ours), "; ".join(others), remark))
    told = ", ".join(f"{name} {value:,.0f}" for name, value in result.get("bytes", {}).items())
    return [*rows, ("tool search: bytes an assistant is told", told, "", "")] if told else rows


def _hits(row: dict[str, float]) -> str:
    return f"{row['hit@1']:.3f} {row['hit@5']:.3f} {row['false answers']:.0%}"


def _retriever(result: dict[str, float]) -> list[Row]:
    size = f"{result['size']:,.0f} passages"
    return [
        (
            f"retriever: ten texts in one call, {size}",
            f"{result['ten_in_one_ms']:.1f} ms",
            f"ten calls {result['ten_calls_ms']:.1f} ms",
            f"x {result['of_ten_calls']:.2f}; the vector arm alone x {result['arm_ratio']:.1f} of one",
        )
    ]


def _packs(result: dict[str, float]) -> list[Row]:
    size = f"{result['chunks']:,.0f} passages"
    times = f"{result['pack_s']:.1f} s, {result['verify_s']:.1f} s, {result['mount_ms']:.0f} ms"
    sizes = f"{result['pack_mb']:.0f} MB, the file {result['file_mb']:.0f} MB"
    beside = f"{result['search_beside_three_ms']:.1f} ms"
    alone = f"the file alone {result['search_alone_ms']:.1f} ms"
    return [
        (f"pack, verify, mount, {size}", times, "", sizes),
        (f"search of a file and three packs, {size} each", beside, alone, f"x {result['beside_over_alone']:.1f}"),
    ]


def _kinds(label: str) -> Callable[[Any], list[Row]]:
    """A row for each kind of question that a part measured by p50 and p95."""
    return lambda result: [
        (f"{label}: {kind}, p50 / p95", f"{row['p50_ms']:.1f} / {row['p95_ms']:.1f} ms", "", "")
        for kind, row in result.items()
        if isinstance(row, dict) and "p50_ms" in row
    ]


def _http(result: dict[str, float]) -> list[Row]:
    times = f"{result['p50_ms']:.1f} / {result['p95_ms']:.1f} / {result['p99_ms']:.1f} ms"
    remark = f"{result['calls_per_s']:.0f} calls a second, {result['errors']:.0f} errors, {result['most_mb']:.0f} MB"
    return [(f"HTTP, {result['clients']:.0f} clients, tools mixed, p50 / p95 / p99", times, "", remark)]


def _told(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.3g}"


TOLD: dict[str, Callable[[Any], list[Row]]] = {
    "start": _start,
    "ingest": _ingest,
    "search": _search,
    "vectors": _vectors,
    "rivals": _rivals,
    "quality": _quality,
    "discovery": _discovery,
    "retriever": _retriever,
    "packs": _packs,
    "rules": _kinds("rules"),
    "quickstarts": _kinds("quick starts"),
    "http": _http,
    "tui": _tui,
}
