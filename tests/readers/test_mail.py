"""Mail is read as its sender meant it: decoded, message by message, with its attachments."""

import io
import mailbox
import time
from email import policy
from email.message import EmailMessage
from pathlib import Path

import pytest

from localmcp.errors import UnreadableDocument
from localmcp.readers.readers import read_bytes, read_documents


def make_mail(subject="Trasferta a Torino – è confermata", text="Il treno parte alle 7:40.\n", number=1):
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = subject, "Àda Rossi <ada@example.org>", "bob@example.org"
    mail["Date"], mail["Message-ID"] = "Fri, 03 May 2024 10:00:00 +0200", f"<m{number}@example.org>"
    mail.set_content(text, cte="base64")
    return mail


def documents(data, name="a.eml"):
    return list(read_documents(io.BytesIO(data), name))


def test_a_mail_is_decoded_and_says_who_wrote_it_when():
    mail = read_bytes(make_mail().as_bytes(), "a.eml")
    assert mail.title == "Trasferta a Torino – è confermata"
    assert "Il treno parte alle 7:40." in mail.text and "=?" not in mail.text
    assert mail.metadata["from"] == "Àda Rossi <ada@example.org>"
    assert (mail.date, mail.date_from) == ("2024-05-03T10:00:00+02:00", "mail header")
    assert (mail.format, mail.source_type, mail.member) == ("mail", "text", "")


def test_mail_that_is_only_html_becomes_text():
    mail = EmailMessage()
    mail["Subject"], mail["From"] = "News", "a@example.org"
    mail.set_content("<html><style>p{}</style><p>The <b>fee</b> is 12 €</p></html>", subtype="html")
    assert read_bytes(mail.as_bytes(), "a.eml").text == "From: a@example.org\n\nThe fee is 12 €"


def test_quotes_and_signatures_come_last_and_are_marked():
    text = "Yes, on Monday.\n\nOn Fri, 3 May 2024 at 10:00, Bob <b@x.org> wrote:\n> When do we meet?\n\nBye\n"
    text += "-- \nAda\nACME\n"
    mail = read_bytes(make_mail(text=text).as_bytes(), "a.eml")
    own, repeated = mail.text[: mail.appendix], mail.text[mail.appendix :]
    assert own.endswith("Yes, on Monday.\n\nBye")
    assert "> When do we meet?" in repeated and repeated.endswith("Ada\nACME")
    forwarded = read_bytes(make_mail(text="> only a quote\n").as_bytes(), "a.eml")
    assert forwarded.appendix is None and "only a quote" in forwarded.text


def test_attachments_are_documents_with_the_mail_as_parent():
    mail = make_mail()
    mail.add_attachment(b"# Invoice\n\n421 EUR\n", maintype="text", subtype="markdown", filename="invoice.md")
    mail.add_attachment(b"\x7fELF\0\0", maintype="application", subtype="octet-stream", filename="tool.bin")
    mail.add_attachment(make_mail("Inner", "A mail in a mail", 2))
    first, invoice, tool, inner = documents(mail.as_bytes())
    assert first.metadata["attachments"] == ["invoice.md", "tool.bin", "forwarded.eml"]
    assert (invoice.member, invoice.parent, invoice.title) == ("invoice.md", "", "Invoice")
    assert tool.failure == "tool.bin cannot be read: no reader for .bin." and not tool.text
    assert (inner.title, inner.format) == ("Inner", "mail")


def test_a_mailbox_is_a_document_per_message(tmp_path):
    path = tmp_path / "archive.mbox"
    box = mailbox.mbox(path)
    for number in range(3):
        mail = make_mail(f"Mail {number}", f"From here on it is number {number}.\n\nFrom me\n", number)
        if number == 1:
            mail.add_attachment(b"plain words", maintype="text", subtype="plain", filename="a.txt")
        box.add(mail)
    box.close()
    with path.open("rb") as file:
        members = list(read_documents(file, path.name))
        names = [member.member.replace("@example.org", "") for member in members]
        assert names == ["m0", "m1", "m1/a.txt", "m2"]
        assert members[2].parent == "m1@example.org"
        assert "From here on it is number 2.\n\nFrom me" in members[3].text
        assert [member.text for member in read_documents(file, "Inbox")] == [member.text for member in members]


def test_a_message_of_a_maildir_needs_no_suffix():
    assert read_bytes(make_mail().as_bytes(), "1714723200.M1P2.host:2,S").format == "mail"
    assert read_bytes(b"From: here\nTo: there\nnotes\n", "notes").format == "text"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"no mail at all", "holds no mail"),
        (b"", "is empty"),
        (b"From: a@x\nContent-Type: application/pkcs7-mime\n\nMIAGCSq", "encrypted"),
    ],
)
def test_what_is_no_readable_mail_says_why(data, reason):
    with pytest.raises(UnreadableDocument, match=reason):
        read_bytes(data, "a.eml")


def test_broken_headers_do_not_hide_the_text():
    data = (
        b"From: =?x?=?= <<\nDate: yesterday\nSubject: =?utf-8?b?8?=\nContent-Type: text/plain; charset=nope\n\nwords\n"
    )
    mail = read_bytes(data, "a.eml")
    assert mail.text.endswith("words") and mail.date == ""
    split = b"From: a@x.example\nSubject: =?gb2312?B?1uzp?= =?gb2312?B?Rg==?=\n\nwords"
    assert read_bytes(split, "a.eml").title == "朱镕"
    assert make_mail().as_bytes(policy=policy.SMTP) != b""


@pytest.mark.parametrize(
    "header",
    [b"", b"Content-Type: text/plain\n"]
    + [b"Content-Type: text/plain; charset=%s\n" % charset for charset in (b"us-ascii", b"iso-8859-1", b"utf-16")],
)
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_a_mail_that_names_no_encoding_or_a_wrong_one_is_read_as_what_it_is_in(header, encoding):
    text = "Die Umwälzpumpe läuft ständig auf der höchsten Stufe, das hält sie nicht mehr lange aus."
    mail = read_bytes(b"From: a@x.example\nSubject: Pumpe\n" + header + b"\n" + text.encode(encoding), "a.eml")
    assert mail.text.endswith(text)


PARTS = {
    "text below an attached picture, as Apple Mail writes it": (
        "multipart/mixed; boundary=b",
        "--b\nContent-Type: text/plain\n\nAbove.\n--b\nContent-Type: image/png; name=a.png\n\n-\n"
        "--b\nContent-Type: text/plain\n\nThe gate code is 4711.\n--b--\n",
    ),
    "the footer of a list below alternatives": (
        "multipart/mixed; boundary=b",
        "--b\nContent-Type: multipart/alternative; boundary=c\n\n--c\nContent-Type: text/html\n\n<p>Above.</p>\n"
        "--c\nContent-Type: text/plain\n\nAbove.\n--c--\n"
        "--b\nContent-Type: text/plain\n\nThe gate code is 4711.\n--b--\n",
    ),
    "the same in HTML beside plain text": (
        "multipart/mixed; boundary=b",
        "--b\nContent-Type: text/plain\n\nAbove.\n\nThe gate code is 4711.\n"
        "--b\nContent-Type: text/html\n\n<p>The gate code is 4711.</p>\n--b--\n",
    ),
    "HTML beside a plain text that says to look there": (
        "multipart/alternative; boundary=b",
        "--b\nContent-Type: text/plain\n\nAbove.\n"
        "--b\nContent-Type: text/html\n\n<p>The gate code is 4711.</p>\n--b--\n",
    ),
    "a body in Markdown": ("text/markdown", "Above.\n\nThe gate code is 4711."),
}


@pytest.mark.parametrize(("kind", "body"), PARTS.values(), ids=PARTS)
def test_every_part_of_a_mail_that_is_text_is_read_once(kind, body):
    head = f"From: ada@example.org\nSubject: Gate\nMIME-Version: 1.0\nContent-Type: {kind}\n\n"
    mail = documents((head + body).encode())[0]
    assert mail.text.partition("\n\n")[2] == "Above.\n\nThe gate code is 4711."


def test_lines_that_may_introduce_a_quote_cost_no_more_than_others():
    paragraph = f"On {'1' * 390}\n{'2' * 100}\n\n"
    begin = time.process_time()
    read_bytes(b"From: ada@example.org\nSubject: Gate\n\n" + paragraph.encode() * 1000, "a.eml")
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    ("hostile", "is_read"),
    [
        (b"Content-Type: text/plain; " + b"(" * 5000 + b"\n\ntext\n", True),
        (b"Date: Mon, 1 Jan 2024 10:00:00 +99999999999999\n\ntext\n", True),
        (b"Content-Type: message/rfc822\n\n" * 3000 + b"\n", False),
    ],
    ids=["brackets", "time zone", "mails in mails"],
)
def test_a_mail_that_breaks_the_parser_takes_no_other_along(hostile, is_read):
    good = make_mail().as_bytes()
    mails = (good, b"From: a@b.c\n" + hostile, good)
    mailbox = b"".join(b"From a@x Fri May  3 10:00:00 2024\n" + mail + b"\n" for mail in mails)
    _, broken, last = documents(mailbox, "a.mbox")
    assert last.title.startswith("Trasferta")
    assert broken.text.endswith("text") if is_read else broken.failure == "Its parts are nested too deeply."


def test_a_message_of_outlook_is_a_mail_with_its_attachments() -> None:
    mail, attached = documents((Path(__file__).parent / "files" / "roses.msg").read_bytes(), "roses.msg")
    assert (mail.title, mail.date) == ("Roses for the terrace", "2026-03-14T09:26:00+00:00")
    assert mail.text.startswith('From: "Bruno Gärtner" <bruno@garden.example>\nTo: Ada Rossi <ada@home.example>\n')
    assert mail.text.endswith("Dear Ada,\n\nthe roses come on Friday.")
    assert (attached.title, attached.text) == ("list", "three pots, one spade")
    with pytest.raises(UnreadableDocument, match="damaged"):
        read_bytes(bytes.fromhex("d0cf11e0a1b11ae1"), "a.msg")
