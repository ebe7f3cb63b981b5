"""Tables in documents are found with their types, asked in SQL from the file as it is now, and show nothing else."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from command_line import run
from folders import write

from localmcp.config import Settings
from localmcp.errors import InvalidInput, Unavailable
from localmcp.tables.documents import describe_tables
from localmcp.tools import Scope
from localmcp.workspace import Workspace

BILLS = """Rechnungen 2024

Datum;Lieferant;Betrag;Bezahlt;Bezahlt
03.01.2024;Müller;1.250,00 €;ja;x
17.02.2024;Böhm;-89,90 €;nein;
05.11.2024;Müller;12,50 €;ja;
Summe;;1.172,60 €;;
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "docs" / "bills.csv", BILLS)
    suppliers = [{"name": "Müller", "city": "Köln"}, {"name": "Böhm", "city": "Ulm"}, {"name": "Ott", "city": "Ulm"}]
    write(tmp_path / "docs" / "suppliers.json", json.dumps({"made": "2024", "suppliers": suppliers}))
    return tmp_path / "docs"


@pytest.fixture
def workspace(tmp_path: Path, folder: Path) -> Iterator[Workspace]:
    with Workspace(Settings(database=tmp_path / "a.localmcp", model="hash")) as workspace:
        workspace.library.add_paths([folder])
        yield workspace


def query(workspace: Workspace, sql: str, scope: Scope | None = None) -> dict[str, Any]:
    return workspace.registry.call("query_table", {"sql": sql}, scope).value


def listed(workspace: Workspace, **arguments: Any) -> dict[str, dict[str, Any]]:
    return {table["name"]: table for table in workspace.registry.call("list_tables", arguments).value["tables"]}


def columns(name: str, text: str) -> dict[str, str]:
    [table] = json.loads(describe_tables(name, text, None) or "[]")
    return {column["name"]: column["type"] for column in table["columns"]}


# ---------------------------------------------------------------- what a table is


def test_a_table_tells_its_columns_types_rows_and_what_was_left_out(workspace: Workspace) -> None:
    bills = listed(workspace, words="rechnungen bills")["bills"]
    assert [(column["name"], column["type"]) for column in bills["columns"]] == [
        ("Datum", "date"), ("Lieferant", "text"), ("Betrag", "money (EUR)"), ("Bezahlt", "yes/no"),
        ("Bezahlt 2", "text"), ("line", "integer"),
    ]  # fmt: skip
    assert bills["rows"] == 3 and bills["sample"][0] == ["2024-01-03", "Müller", 1250, "ja", "x", 4]
    assert bills["notes"] == ["the total in line 7 is left out"]
    assert listed(workspace, document="suppliers").keys() == {"suppliers"}


@pytest.mark.parametrize(
    ("values", "kind", "first"),
    [
        (("1,250.00", "3,5", "12.75"), "text", "1,250.00"),
        (("1.250", "12,5", "7"), "decimal", 1250),
        (("1.250", "3.475"), "decimal", 1.25),
        (("12%", "7.5 %", "-3%"), "percent", 12),
        (("$5.00", "($1,300.20)", "12"), "money (USD)", 5),
        (("€ 5,00", "7,10-", "n/a"), "money (EUR)", 5),
        (("$5", "€7", "£9"), "text", "$5"),
        (("00123", "00456", "99"), "text", "00123"),
        (("+49 30 123456", "+49 89 5555"), "text", "+49 30 123456"),
        (("03/04/2025", "13/04/2025"), "date", "2025-04-03"),
        (("03/04/2025", "03/14/2025"), "date", "2025-03-04"),
        (("3. März 2025", "12 Sep 2025", "May 5, 2024"), "date", "2025-03-03"),
        (("14 juillet 2024", "3 juin 2025"), "date", "2024-07-14"),
        (("2025-03-01 8:05", "2025-03-02T10:15:00Z"), "date and time", "2025-03-01 08:05"),
        (("oui", "non"), "yes/no", "oui"),
        (("2024-13-40", "2024-02-30"), "text", "2024-13-40"),
        (("0.8330222517312345678", "9.75e-06", "0"), "decimal", 0.8330222517312345678),
        (("1234567890123456", "2234567890123456"), "text", "1234567890123456"),
        (("#N/A", "--", "5"), "integer", None),
        (("6/17/47", "5/1/09"), "date", "1947-06-17"),
        (("9:05", "13:08"), "time", "09:05"),
        (("11:31:52 PM", "12:05 a.m."), "time", "23:31:52"),
        (("7/3/2018 1:47p", "7/14/2018 10:28 AM"), "date and time", "2018-07-03 13:47"),
        (("9/15/2000 00:00:00", "9/16/2000 00:00:00"), "date", "2000-09-15"),
        (("-", "N/A"), "text", "-"),
        ((" " * 9_000 + "x", "5"), "text", "x"),
        ((*["8.4"] * 20, "unrated"), "decimal", 8.4),
    ],
)
def test_a_column_has_the_type_that_its_values_have(values: tuple[str, ...], kind: str, first: Any) -> None:
    rows = "".join(f"row {number}\t{value}\n" for number, value in enumerate(values * 3))
    [table] = json.loads(describe_tables("a.tsv", f"name\tvalue\n{rows}", None) or "[]")
    assert table["columns"][1] == {"name": "value", "type": kind}
    assert table["sample"][0][1] == first


def test_a_few_odd_values_stay_text_and_are_counted() -> None:
    rows = "".join(f"{number},{'unknown' if number == 7 else number * 2}\n" for number in range(40))
    [table] = json.loads(describe_tables("a.csv", f"id,size\n{rows}", None) or "[]")
    assert table["columns"][1]["type"] == "integer" and table["notes"] == [
        "1 value of 'size' not read as integer, but kept as text"
    ]


def test_workbooks_have_a_table_a_sheet_with_merged_headers_and_their_own_types(
    tmp_path: Path, workspace: Workspace
) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "Marks"
    for row in (["Pupil", "Autumn", None, "Spring", None], [None, "Math", "Art", "Math", "Art"]):
        sheet.append(row)
    for span in ("A1:A2", "B1:C1", "D1:E1"):
        sheet.merge_cells(span)
    for number in range(4):
        sheet.append([f"P{number}", 1, 2, 3, number])
    sheet.merge_cells("Y1:Z2")
    other = book.create_sheet("Trips")
    other.append(["Trips of the year"])
    other.append([])
    other.append(["Day", "Cost", "Room"])
    for number in range(1, 4):
        other.append([datetime.date(2025, 3, number), 1.5 * number, 104 if number == 1 else "105A"])
    other.merge_cells("A1:C1")
    other.append([None, 9.0])
    other.append(["Without the train"])
    (tmp_path / "more").mkdir()
    book.save(tmp_path / "more" / "school.xlsx")
    workspace.library.add_paths([tmp_path / "more"])
    tables = listed(workspace, document="school")
    names = [column["name"] for column in tables["school.Marks"]["columns"]]
    assert names == ["Pupil", "Autumn Math", "Autumn Art", "Spring Math", "Spring Art", "line"]
    assert tables["school.Trips"]["sample"][0] == ["2025-03-01", 1.5, "104", 4] and tables["school.Trips"]["rows"] == 3
    assert query(workspace, 'select sum("Spring Art") from "school.Marks"')["rows"] == [[6]]


def test_tables_in_text_are_tables_and_other_text_is_none() -> None:
    text = "# Garden\n\nPlant | Count\n|---|--:|\n| **Kale** | 3 |\n| Leek | 4 |\n| Sage | 5 |\n\nMore.\n"
    assert columns("garden.md", text) == {"Plant": "text", "Count": "integer", "line": "integer"}
    assert describe_tables("a.md", "Only a sentence, with commas, and more.\n" * 9, None) is None
    assert describe_tables("a.csv", "one,two\n1,2\n", None) is None
    assert describe_tables("a.json", "[1, 2, 3, 4]", None) is None
    assert describe_tables("a.json", "{", None) is None
    halves = [*[{"a": "x", "b": 1}] * 4, {"a": None, "b": None}, {"a": "Name", "b": 2019}, *[{"a": "y", "b": 7.5}] * 3]
    tables = json.loads(describe_tables("a.json", json.dumps(halves), None) or "[]")
    assert [table["columns"][1]["name"] for table in tables] == ["b", "2019"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Town,2019,2020,2021\nUlm,5,7,8\nBonn,3,4,4\nKiel,9,9,1\n", ["Town", "2019", "2020", "2021"]),
        ("state,2021\nUlm,-29.5\nBonn,3.5\nKiel,1.1\n", ["state", "2021"]),
        (",0,1,2,3\nUlm,5,7,8,1\nBonn,3,4,4,1\nKiel,9,9,1,1\n", ["column 1", "0", "1", "2", "3"]),
        ("Ulm,2019\nBonn,2020\nKiel,2021\n", ["column 1", "column 2"]),
        ("1,2,3\n4,5,6\n7,8,9\n", ["column 1", "column 2", "column 3"]),
        ("Town,Size\rUlm,5\rBonn,3\rKiel,1\r", ["Town", "Size"]),
        ("Town,Size,Rain\n,km2,mm\nUlm,5,6\nBonn,5,7\nKiel,1,1\n", ["Town", "Size km2", "Rain mm"]),
        ("made:,Ada\ndrawn,up,by\nTown,Size,Rain\nUlm,5,6\nBonn,5,7\nKiel,1,1\n", ["Town", "Size", "Rain"]),
        ("Town,5/9/20,5/10/20\nUlm,5,6\nBonn,5,7\nKiel,1,1\n", ["Town", "5/9/20", "5/10/20"]),
        ("Town,Size\nTown,Size\nUlm,5\nBonn,5\nKiel,1\n", ["Town", "Size"]),
        (",2019,2019\n,Land,People\nUlm,5,6\nBonn,5,7\nKiel,1,1\n", ["column 1", "2019 Land", "2019 People"]),
        (",Size,Size\nTown,Land,People\nUlm,5,6\nBonn,5,7\nKiel,1,1\n", ["Town", "Size Land", "Size People"]),
        ("Town,Rain,Rain\nUlm,1,2\nBonn,5,7\nKiel,dry,wet\nRom,5,6\nPisa,5,7\nBari,1,1\n", ["Town", "Rain", "Rain 2"]),
        ("Do,Due,Is\na,,\nb,1/2/24,2025\nc,3/2/24,3\nd,3/2/24,4\ne,5/2/24,5\n", ["Do", "Due", "Is"]),
        ("Shop,3,2,1\nUlm,9,5,6\nBonn,9,5,7\nKiel,9,1,1\n", ["Shop", "3", "2", "1"]),
        ("Do,Due,Is\na,1/2/24,x\n" + "b,3/2/24,y\n" * 3 + "\nc,4/2/24,x\nd,,y\ne,5/2/24,x\n", ["Do", "Due", "Is"]),
        ("Word,Meaning\nhi,hello\nbye,end\nso,thus\nif,maybe\n\nox,cow\nup,high\n", ["Word", "Meaning"]),
    ],
)
def test_the_header_is_of_words_or_years_or_two_rows(text: str, names: list[str]) -> None:
    assert list(columns("a.csv", text)) == [*names, "line"]


# ---------------------------------------------------------------- questions


def test_rows_are_counted_added_and_joined_and_their_places_told(workspace: Workspace) -> None:
    answer = query(workspace, "select city, sum(Betrag) from bills join suppliers on name = Lieferant group by 1")
    assert answer["rows"] == [["Köln", 1262.5], ["Ulm", -89.9]] and answer["count"] == 2 and not answer["truncated"]
    assert [(place["table"], place["rows"]) for place in answer["places"]] == [("bills", 3), ("suppliers", 3)]
    assert answer["places"][0]["path"].endswith("bills.csv")
    assert query(workspace, "select line from bills where Datum >= '2024-06-01'")["rows"] == [[6]]
    assert query(workspace, "select count(*) from bills where contains(Lieferant, 'mull')")["rows"] == [[2]]
    assert query(workspace, "select levenshtein('kitten', 'sitting')")["rows"] == [[3]]


def test_the_file_is_read_as_it_is_now_and_the_answer_says_when_it_has_changed(
    workspace: Workspace, folder: Path
) -> None:
    assert "notices" not in query(workspace, "select count(*) from suppliers")
    with (folder / "bills.csv").open("a", encoding="utf-8") as file:
        file.write("06.12.2024;Ott;7,00 €;ja;\n")
    answer = query(workspace, "select count(*) from bills")
    assert answer["rows"] == [[5]] and any("has changed since" in notice for notice in answer["notices"])
    (folder / "bills.csv").unlink()
    with pytest.raises(InvalidInput, match="cannot be read"):
        query(workspace, "select count(*) from bills")


def test_a_search_says_that_a_long_table_can_be_counted(workspace: Workspace, tmp_path: Path) -> None:
    rows = "".join(f"{day}.01.2025,Huber,{day}\n" for day in range(1, 25))
    write(tmp_path / "more" / "orders.csv", f"Tag,Kunde,Menge\n{rows}")
    workspace.library.add_paths([tmp_path / "more"])

    def notices(query: str) -> str:
        found = workspace.registry.call("search", {"query": query}, Scope(caller="stdio", lean=True)).value
        return " ".join(found.get("notices", ()))

    assert "orders (24 rows)" in notices("Huber Menge") and "query_table" in notices("Huber Menge")
    assert "bills" not in notices("Müller Betrag")


def test_two_tables_under_one_heading_of_a_text_without_a_file_are_two(workspace: Workspace) -> None:
    rows = "| A | B |\n|--|--|\n| x | {} |\n| y | 2 |\n| z | 3 |\n\n"
    workspace.library.add_text(f"# Same\n\n{rows.format(1)}Between.\n\n{rows.format(5)}", "Twins")
    assert query(workspace, 'select sum(B) from "Twins.Same"')["rows"] == [[6]]
    assert query(workspace, 'select sum(B) from "Twins.Same 2"')["rows"] == [[10]]


def test_names_that_differ_in_case_only_are_two(workspace: Workspace, tmp_path: Path) -> None:
    write(tmp_path / "more" / "BILLS.csv", BILLS)
    workspace.library.add_paths([tmp_path / "more"])
    rows = query(workspace, 'select (select count(*) from bills), (select count(*) from "BILLS 2")')["rows"]
    assert rows == [[3, 3]]


def test_wrong_names_name_the_nearest(workspace: Workspace) -> None:
    for column in ("Betrg", '"Betrg"'):
        with pytest.raises(InvalidInput) as caught:
            query(workspace, f"select {column} from bills")
        assert '"Betrag"' in str(caught.value)
    with pytest.raises(InvalidInput) as caught:
        query(workspace, "select * from bils")
    assert "bills" in (caught.value.hint or "")


def test_many_rows_are_cut_and_the_answer_says_so(workspace: Workspace) -> None:
    sql = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 900) select i from n"
    answer = query(workspace, sql)
    assert answer["count"] == 500 and answer["truncated"] and "more rows" in answer["notices"][0]


# ---------------------------------------------------------------- what a statement cannot do


def test_a_statement_only_reads_tables_of_documents(workspace: Workspace, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in (tmp_path / "docs").iterdir()}
    for sql in (
        "select * from sources", "select * from sqlite_schema", "select * from temp.sqlite_schema",
        "select * from pragma_table_list", "select * from pragma_database_list", "pragma table_info(bills)",
        "attach 'x' as y", "vacuum into 'x'", "delete from bills", "drop table bills", "create table x (a)",
        "insert into bills (Datum) values (1)", "select load_extension('x')", "select 1; select 2", "", "-- nothing",
        "begin", "select length(zeroblob(200000))", "select * from json_each(readfile('x'))",
    ):  # fmt: skip
        with pytest.raises(InvalidInput):
            pytest.fail(f"{sql!r} gave {query(workspace, f'{sql} -- bills' if sql else sql)}")
        assert {path: path.read_bytes() for path in (tmp_path / "docs").iterdir()} == before, sql
        assert query(workspace, "select count(*) from bills")["rows"] == [[3]], sql


def test_an_endless_statement_is_stopped(workspace: Workspace) -> None:
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select i from n"
    with pytest.raises(InvalidInput, match="longer than 2 s"):
        query(workspace, f"select count(*) from bills a, bills b, ({endless})")


def test_where_no_process_starts_the_next_one_may(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(Unavailable):
        patch.setattr("sys.executable", "/nothing")
        query(workspace, "select count(*) from bills")
    assert query(workspace, "select count(*) from bills")["rows"] == [[3]]


def test_a_caller_bound_to_collections_sees_no_other_table(workspace: Workspace, tmp_path: Path) -> None:
    write(tmp_path / "private" / "salaries.csv", "name,pay\nA,1\nB,2\nC,3\n")
    workspace.library.add_paths([tmp_path / "private"], collection="private")
    assert query(workspace, "select sum(pay) from salaries")["rows"] == [[6]]
    bound = Scope(caller="key", collections=frozenset({"default"}))
    assert "salaries" not in {
        table["name"] for table in workspace.registry.call("list_tables", {}, bound).value["tables"]
    }
    with pytest.raises(InvalidInput) as caught:
        query(workspace, "select sum(pay) from salaries", bound)
    assert "salaries" not in (caught.value.hint or "")


def test_the_commands_list_tables_and_print_rows(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    path = str(workspace.database.path)
    code, out, _ = run(capsys, "--db", path, "tables", "rechnungen", "bills")
    assert code == 0 and "Betrag (money (EUR))" in out
    sql = "select Lieferant, sum(Betrag) as total from bills group by 1"
    code, out, said = run(capsys, "--db", path, "query", sql)
    assert code == 0 and "1262.5" in out and "bills.csv, 3 rows" in said and "line 7 is left out" in said
    assert run(capsys, "--db", path, "query", "--csv", sql)[1].splitlines()[0] == "Lieferant,total"
    assert run(capsys, "--db", path, "query", "select Betrg from bills")[0] != 0
