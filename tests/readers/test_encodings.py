"""Texts, pages and mails in older encodings, which they name, name loosely, or do not name."""

import io
import tarfile

import pytest

from localmcp.readers.readers import read_bytes, read_documents


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Não põe o avião à disposição; até à manhã só há pães e rosé.", "cp1252"),
        ("Pärast lõunat öeldi, et töö on tehtud õigesti ja rahulikult ära.", "cp1252"),
    ],
)
def test_text_that_does_not_name_its_encoding_is_recognized(text: str, encoding: str) -> None:
    document = read_bytes(text.encode(encoding), "a.txt")
    assert (document.text, document.metadata["encoding"]) == (text, encoding)


@pytest.mark.parametrize("stray", [b"\0", b"\0\n", b"a\0\0"])
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_text_with_a_stray_nul_does_not_become_chinese(stray: bytes, encoding: str) -> None:
    text = "Perché la città è così? Più libertà.\n" * 20
    assert text in read_bytes(stray + text.encode(encoding), "a.txt").text


DECLARED = [
    ("gb2312", "总理朱镕基昨天会见了外宾。", "gbk"),
    ("shift_jis", "①株式会社㈱ 髙橋", "cp932"),
    ("euc-kr", "펲시맨 똠방각하 뷁", "cp949"),
    ("big5", "裏面 碁盤 恒生", "cp950"),
    ("utf-8", "La città è così", "cp1252"),
    ("iso-8859-1", "price – 5 € “quoted”", "cp1252"),
    ("iso-8859-8-i", "שלום", "iso-8859-8"),
    ("tis-620", "ภาษาไทย", "cp874"),
]


@pytest.mark.parametrize(("declared", "text", "written"), DECLARED)
def test_pages_and_mails_may_hold_what_only_the_larger_encoding_has(declared: str, text: str, written: str) -> None:
    page = f'<html><head><meta charset="{declared}"></head><body><p>{text}</p></body></html>'
    mail = f"From: a@example.org\nSubject: s\nContent-Type: text/plain; charset={declared}\n\n{text}"
    assert read_bytes(page.encode(written), "a.html").text == text
    assert read_bytes(mail.encode(written), "a.eml").text.endswith(f"\n\n{text}")


def test_the_names_in_a_tar_file_may_be_in_an_older_encoding() -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT, encoding="cp1252") as archive:
        member = tarfile.TarInfo("Château.txt")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"Text"))
    assert [document.member for document in read_documents(file, "a.tar", archive=True)] == ["Château.txt"]


@pytest.mark.parametrize(
    ("modern", "older"),
    [("Größe, Café\n", "naïve café größe\n"), ("Übung, Öl\n", "crème brûlée\n"), ("5 €, 6 €\n", "“8” €\n")],
)
def test_two_encodings_in_one_file_are_both_read(modern: str, older: str) -> None:
    assert read_bytes(modern.encode() + older.encode("cp1252"), "a.csv").text == modern + older


def test_a_short_text_is_in_no_encoding_that_hardly_any_file_is_in() -> None:
    text = "Привет, как дела? Это обычный русский текст про погоду."
    assert read_bytes(text.encode("cp1251"), "a.txt").text == text
