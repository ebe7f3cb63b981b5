"""`localmcp tables` and `query`: tables in documents, asked in SQL."""

from __future__ import annotations

import csv
import sys

import click

from localmcp.cli.session import COMMAND_OF_TOOL, Session, command, pass_session
from localmcp.schemas import Json

COMMAND_OF_TOOL.update(list_tables="localmcp tables", query_table="localmcp query")


@command()
@click.argument("words", nargs=-1)
@click.option("-n", "--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="Tables.")
@pass_session
def tables(session: Session, words: tuple[str, ...], limit: int) -> None:
    """List the tables in documents, with their columns.

    Their names are those that `localmcp query` takes. With WORDS, only the tables that speak of them.
    """
    answer = session.call("list_tables", words=" ".join(words) or None, limit=limit).value

    def show(value: Json) -> None:
        rows = [
            (table["name"], f"{table['rows']:,}", ", ".join(f"{c['name']} ({c['type']})" for c in table["columns"]))
            for table in value["tables"]
        ]
        session.print_table(("table", "rows", "columns"), rows, right=(1,))
        session.note(value.get("hint") or "Ask with: localmcp query 'select count(*) from \"TABLE\"'")

    session.answer(answer, show)


@command()
@click.argument("sql")
@click.option("--csv", "as_csv", is_flag=True, help="Print the rows as CSV.")
@pass_session
def query(session: Session, sql: str, as_csv: bool) -> None:
    """Ask tables in documents in SQL.

    It takes one SELECT of SQLite. Names stand in double quotes where they have spaces; dates are ISO text, money and
    percentages numbers. Each table has the column `line`, the place of a row in its document. The file is read as it is
    now.
    """
    answer = session.call("query_table", sql=sql).value

    def show(value: Json) -> None:
        if as_csv:
            csv.writer(sys.stdout).writerows([value["columns"], *value["rows"]])
            return
        rows = [["" if cell is None else str(cell) for cell in row] for row in value["rows"]]
        session.print_table(value["columns"], rows)
        for place in value["places"]:
            session.note(f"from {place.get('path') or place['document']}, {place['rows']:,} rows")

    session.answer(answer, show)
    session.warn(*answer.get("notices", ()))
