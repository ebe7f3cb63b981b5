"""Small files that ask for minutes or gigabytes are read cheaply or stopped, and the other files are read."""

import pytest
from made_files import make_nested_forms, make_zip

from localmcp.errors import LocalMCPError
from localmcp.models.choice import estimate_tokens
from localmcp.readers.chunking import split
from localmcp.readers.readers import read_bytes
from localmcp.readers.worker_pool import Limits, WorkerPool

LIMITS = Limits(seconds=2, seconds_per_megabyte=3, memory=300_000_000)
"""A quarter of what documents have by default."""
CONTAINER = '<container><rootfiles><rootfile full-path="b.opf"/></rootfiles></container>'
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def make_book(chapter, times):
    spine = "<itemref idref='a'/>" * times
    manifest = "<manifest><item id='a' href='a.xhtml' media-type='application/xhtml+xml'/></manifest>"
    package = f"<package>{manifest}<spine>{spine}</spine></package>"
    return make_zip({"META-INF/container.xml": CONTAINER, "b.opf": package, "a.xhtml": chapter})


BOMBS = {
    "repeated.epub": lambda: make_book(("<p>" + "word " * 100) * 4_000, 60),
    "large.epub": lambda: make_book("<p>word " * 5_000_000, 1),
    "forms.pdf": make_nested_forms,
    "small.docx": lambda: make_zip(
        {
            "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>'
            + "<w:p><w:r><w:t>a</w:t></w:r></w:p>" * 60_000
            + "</w:body></w:document>"
        }
    ),
    "nested.html": lambda: b"</b><div>" * 200_000 + b"deep",
    "drawn.html": lambda: b'<path d="M0" />' * 20_000 + b"deep",
    "anchors.html": lambda: b"".join(b"<p id=a%d><a href=#a%d>a</a></p>" % (n, n) for n in range(8_000)),
    "fonts.html": lambda: b"<p>" + b"".join(b"<font size=%d>" % n for n in range(1000)) + b"<p>x" * 10_000,
    "headings.md": lambda: b"# x\n" + b"#\n" * 80_000,
    "list.md": lambda: b"- a\n" * 100_000,
}


def read_and_cut(item):
    name, data = item
    try:
        document = read_bytes(data, name)
    except LocalMCPError as error:
        yield str(error)
        return
    yield len(split(document, estimate_tokens))


@pytest.fixture(scope="module")
def outcomes():
    """Name -> number of passages, or the reason why there are none."""
    items = [*((name, make()) for name, make in BOMBS.items()), ("plain.txt", b"plain words")]
    with WorkerPool(read_and_cut, workers=2, limits=LIMITS) as pool:
        outcomes = ((answer.item[0], answer.failure or answer.value) for answer in pool.run(items))
        return {name: outcome for name, outcome in outcomes if outcome is not None}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("large.epub", "unpacks to more than 20 MB"),
        ("forms.pdf", "reading it took more than"),
        ("nested.html", "reading it took more than"),
        ("fonts.html", "reading it took more than"),
        ("drawn.html", ""),
        ("anchors.html", ""),
        ("repeated.epub", ""),
        ("small.docx", ""),
        ("headings.md", ""),
        ("list.md", ""),
        ("plain.txt", ""),
    ],
)
def test_bombs_are_read_or_refused_within_their_limits(outcomes, name, reason):
    outcome = outcomes[name]
    assert reason in outcome if reason else isinstance(outcome, int), outcome
