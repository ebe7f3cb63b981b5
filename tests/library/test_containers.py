"""Mailboxes, mails with attachments and archives: every document in them is found and cited by itself."""

import mailbox
import os
from contextlib import closing

from folders import write
from made_files import make_mail, make_zip

from localmcp.tools import Scope

PUMP = "# Pump\n\nThe pump needs oil in May.\n"


def best(file, words):
    return file.call("search", query=words, mode="keyword")["results"][0]


def test_each_message_and_attachment_is_cited_with_the_path_of_its_mailbox(tmp_path, file):
    folder = tmp_path / "mail"
    folder.mkdir()
    box = mailbox.mbox(folder / "archive.mbox")
    box.add(make_mail("Subject 1", "The gate code is 4711.", 1))
    with_attachment = make_mail("Invoice", "The invoice is attached.", 2)
    with_attachment.add_attachment(b"total 421 EUR", maintype="text", subtype="plain", filename="invoice.txt")
    box.add(with_attachment)
    box.close()
    file.add(folder)
    hit = best(file, "gate code")
    assert hit["sourceTitle"] == "Subject 1"
    assert hit["citation"]["path"] == str(folder / "archive.mbox")
    assert hit["citation"]["label"].endswith("archive.mbox, Subject 1 (2024-05-01)")
    assert hit["freshness"] == "fresh"
    attachment = best(file, "421 EUR")
    assert attachment["sourceTitle"] == "invoice"
    assert attachment["citation"]["path"] == str(folder / "archive.mbox")
    (folder / "archive.mbox#gate.md").write_text("The gate is a file beside the mailbox.")
    file.add(folder)
    only = file.call("search", query="gate", pathPrefix=str(folder / "archive.mbox"), mode="keyword")["results"]
    assert [hit["sourceTitle"] for hit in only] == ["Subject 1"]
    assert file.call("list_sources", pathPrefix=str(folder / "archive.mbox"))["total"] == 3


def test_an_archive_that_is_named_is_read_as_a_folder(tmp_path, file):
    path = tmp_path / "old.zip"
    tank = "# Tank\n\nThe tank holds 40 liters.\n"
    path.write_bytes(make_zip({"notes/pump.md": PUMP, "notes/tank.md": tank, "tool.bin": b"\x7fELF\0\0"}))
    file.add(path)
    assert best(file, "pump oil")["citation"]["path"] == str(path)


def test_why_answers_for_the_file_that_a_document_is_in(tmp_path, file):
    path = tmp_path / "old.zip"
    path.write_bytes(make_zip({"notes/pump.md": PUMP, "empty.md": ""}))
    report = file.add(path)
    [(failed, _)] = report.problems
    for name in (f"{path}#notes/pump.md", failed):
        explanation = file.workspace.library.why(name)["explanation"]
        assert explanation.startswith("indexed as 1 document in 1 passage") and "empty.md is empty" in explanation


def test_a_file_that_is_in_several_folders_is_one_hit_that_names_the_others(tmp_path, file):
    folders = [f"f{number:02}" for number in range(20)]
    for folder in folders:
        write(tmp_path / "docs" / folder / "lease.md", "# Lease\n\nThe deposit is three months of rent.\n")
    write(tmp_path / "docs" / "other.md", "# Other\n\nThe deposit of the boat is a deposit for spring.\n")
    for folder in folders[:2]:
        write(tmp_path / "docs" / folder / "deposit.md", "# Deposit\n\nEach deposit is kept.\n")
    file.add(tmp_path / "docs")
    pages, cursor = [], {}
    while cursor is not None:
        answer = file.call("search", query="deposit", limit=1, **cursor)
        pages += answer["results"]
        cursor = {"cursor": answer["nextCursor"]} if "nextCursor" in answer else None
    assert [hit["sourceTitle"] for hit in pages] == ["Deposit", "Other", "Lease"]
    # The last one of a page, too.
    assert file.call("search", query="deposit", limit=3)["results"] == pages
    lease = pages[2]
    places = [lease["citation"]["path"], *lease["alsoIn"]]
    assert sorted(places) == [str(tmp_path / "docs" / folder / "lease.md") for folder in folders]
    assert [len(hit.get("alsoIn", ())) for hit in pages] == [1, 0, 19]
    [only] = file.call("search", query="deposit rent", pathPrefix=str(tmp_path / "docs" / "f07"))["results"]
    assert only["citation"]["path"].endswith("f07/lease.md") and "alsoIn" not in only
    lean = file.workspace.registry.call("search", {"query": "deposit rent"}, Scope(caller="stdio", lean=True))
    assert "also in " in lean.text and "f03/lease.md, 16 more" in lean.text


def test_messages_of_a_mailbox_come_and_go_with_it_also_back_from_the_trash(tmp_path, file):
    path = tmp_path / "mail" / "archive.mbox"
    path.parent.mkdir()
    add_mails(path, 1)
    one = path.read_bytes()
    add_mails(path, 2)
    library = file.workspace.library
    assert file.add(path.parent).indexed == 2
    assert library.why(path)["entries"][0]["chunks"] == 2
    assert file.refresh().unchanged == 1
    path.write_bytes(one)
    report = file.refresh()
    assert (report.unchanged, report.missing) == (1, 1)
    add_mails(path, 2)
    file.refresh()
    assert library.remove([str(path)]).removed == 2
    assert file.call("list_sources")["total"] == 0
    library.restore(str(path))
    add_mails(path, 3)
    assert file.refresh().indexed == 1
    assert file.call("list_sources")["total"] == 3
    path.unlink()
    file.refresh()
    assert file.call("list_sources")["total"] == 0


def freshness(file, number):
    return best(file, f'"message {number}"')["freshness"]


def test_messages_of_a_mailbox_that_has_grown_are_not_called_changed(tmp_path, file):
    path = tmp_path / "archive.mbox"
    add_mails(path, 1, 2)
    file.add(path)
    add_mails(path, 3)
    assert freshness(file, 1) == "changed"
    file.refresh()
    assert [freshness(file, number) for number in (1, 2, 3)] == ["fresh"] * 3
    os.utime(path, (1_700_000_000, 1_700_000_000))
    file.refresh()
    assert [freshness(file, number) for number in (1, 2, 3)] == ["fresh"] * 3


def add_mails(path, *numbers):
    with closing(mailbox.mbox(path)) as box:
        for number in numbers:
            box.add(make_mail(f"Subject {number}", f"This is message {number}.", number))
