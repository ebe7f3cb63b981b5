"""Chunks partition a document, fit the model and know their place."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

import localmcp
from localmcp.models.choice import estimate_tokens
from localmcp.readers.chunking import MOST_CHARACTERS, MOST_ROWS, Chunk, split
from localmcp.readers.document import Document, join_pages
from localmcp.readers.outline import Markup, path_at

LIMIT = 254

_tokenizer = Tokenizer.from_file(str(Path(localmcp.__file__).parent / "data" / "tokenizer.json"))
_tokenizer.no_truncation()
_tokenizer.no_padding()


def count_tokens(text: str, /) -> int:
    return len(_tokenizer.encode(text, add_special_tokens=False).ids)


def split_checked(
    text: str, markup: Markup = "markdown", title: str = "", page_starts: Sequence[int] = (), **limits: int
) -> list[Chunk]:
    """Split, and check what holds for every document."""
    document = Document(title, text, "text", markup, "docs", page_starts=tuple(page_starts))
    chunks = split(document, count_tokens, **limits)
    if not text.strip():
        assert chunks == []
        return chunks
    assert "".join(chunk.text for chunk in chunks) == text
    assert [chunk.start for chunk in chunks] == [0, *(chunk.stop for chunk in chunks[:-1])]
    assert chunks[-1].stop == len(text)
    lines = text.replace("\r\n", " \n").replace("\r", "\n")
    for chunk in chunks:
        body = chunk.text.strip()
        assert body
        assert len(body) <= MOST_CHARACTERS
        assert count_tokens(chunk.embedded_text(title)) <= limits.get("limit", LIMIT)
        first = chunk.start + chunk.text.index(body)
        last = first + len(body) - 1
        assert chunk.first_line == lines.count("\n", 0, first) + 1
        assert chunk.last_line == lines.count("\n", 0, last) + 1
        pages = [sum(start <= at for start in page_starts) for at in (first, last)] if page_starts else [None, None]
        assert [chunk.first_page, chunk.last_page] == pages
    return chunks


pieces = st.sampled_from(
    ["# Guide\n", "## Setup\r\n", "### \n", "Title\n=====\n", "\n", "\r\n", "\r", "\n\n", "```\n", "    code\n"]
    + ["- item\n", "a\n---\n", "| a | b |\n|---|---|\n| 1 | 2 |\n", "> quote\n", "x" * 700, "ab12" * 2000, "!?" * 200]
    + ["A short sentence. ", "Words and more words, " * 60, " " * 5000, "日本語。" * 90, "e\u0301" * 300]
    + ["👩‍👩‍👧" * 150, "가각" * 100, "\u200b", "\x00"]
)
documents = st.one_of(
    st.text(max_size=300),
    st.lists(pieces, min_size=5, max_size=60).map("".join),
    st.lists(st.one_of(pieces, st.text(max_size=20)), max_size=25).map("".join),
)
titles = st.one_of(st.just("Guide"), st.text(max_size=60), st.sampled_from(["!" * 500, "가" * 300, "Long title " * 40]))


@settings(max_examples=120, deadline=None)
@given(documents, st.sampled_from(["markdown", "plain", "code"]), titles, st.lists(st.integers(1, 3000), max_size=4))
def test_any_text_is_partitioned_within_the_limit(text: str, markup: Markup, title: str, page_lengths: list[int]):
    page_starts = [0, *(sum(page_lengths[: count + 1]) for count in range(len(page_lengths)))]
    chunks = split_checked(text, markup, title, page_starts)
    assert "".join(chunk.text for chunk in chunks).strip() == text.strip()


@settings(max_examples=40, deadline=None)
@given(documents, st.integers(8, 120), st.integers(60, 600))
def test_other_targets_and_limits_hold(text: str, target: int, limit: int):
    chunks = split_checked(text, target=target, limit=limit)
    assert all(count_tokens(chunk.text) <= limit for chunk in chunks)


def test_chunks_are_about_as_long_as_the_target():
    text = "\n\n".join(f"Paragraph {number} tells one more thing about the subject. " * 3 for number in range(200))
    sizes = [count_tokens(chunk.text) for chunk in split_checked(text)]
    assert 150 <= sum(sizes) / len(sizes) <= 220


def test_heading_path_is_the_one_in_force_without_markup():
    body = "word " * 180
    text = (
        f"Intro {body}\n\n# The *big* `guide` [link](x)\n\n{body}\n\n## Part {{#p}}\n\n{body}\n\nNext\n----\n\n{body}"
    )
    paths = [chunk.headings for chunk in split_checked(text)]
    assert paths == [(), ("The big guide link",), ("The big guide link", "Part"), ("The big guide link", "Next")]


def test_every_piece_of_a_long_section_keeps_its_path():
    chunks = split_checked("# Guide\n\n## Setup\n\n" + "One more sentence about it. " * 200)
    assert len(chunks) > 4
    assert chunks[0].headings == ("Guide",)
    assert {chunk.headings for chunk in chunks[1:]} == {("Guide", "Setup")}
    assert chunks[0].text.startswith("# Guide\n\n## Setup\n\nOne more")


@pytest.mark.parametrize(
    "sentence",
    [
        "The town's oldest mill ground the valley's wheat, and its owner's \"best flour\" fed three villages.",
        "Run `make all` in the folder, then `make check` before `make install`, or nothing is tested.",
        "It is *not* the **third** door, as [the plan](plan.md) and [its copy](copy.md) say, but a later one.",
        "A ticket is $5 in advance and $7 at the door, so a family of four saves about $8 in one evening.",
    ],
)
def test_a_long_paragraph_of_markdown_is_cut_where_a_sentence_ends(sentence: str) -> None:
    chunks = split_checked("# Guide\n\n" + f"{sentence} " * 40, markup="markdown")
    assert len(chunks) > 2
    assert all(chunk.text.strip().endswith(sentence) for chunk in chunks)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n    "])
@pytest.mark.parametrize("markup", ["plain", "markdown"])
def test_lines_that_a_program_wrapped_are_cut_where_a_sentence_ends(markup: Markup, end: str) -> None:
    sentence = "The mill at the ford ground the wheat of three villages until the river was led into a pipe."
    text = end.join(textwrap.wrap(f"{sentence} " * 40, 60))
    chunks = split_checked(text, markup=markup)
    assert len(chunks) > 2
    assert all(chunk.text.strip().endswith("pipe.") for chunk in chunks)


def test_lines_that_begin_anew_are_cut_between_lines() -> None:
    lines = [f"Item {number} is kept in the third cupboard, with its key and the receipt" for number in range(60)]
    chunks = split_checked("\n".join(lines), markup="plain")
    assert len(chunks) > 2
    assert all(chunk.text.endswith("receipt\n") for chunk in chunks[:-1])


@pytest.mark.parametrize("markup", ["markdown", "plain"])
@pytest.mark.parametrize("sentences", range(8, 24))
def test_words_that_say_what_follows_stay_with_it(markup: Markup, sentences: int) -> None:
    prose = "The pump of the well is looked after by the two of us. " * sentences
    steps = "".join(f"- turn valve number {number} by a quarter\n" for number in range(20))
    chunks = split_checked(f"{prose}\n\nWhen it rattles, do this:\n\n{steps}\n{prose}", markup=markup)
    [introduced] = [chunk.text for chunk in chunks if "do this:" in chunk.text]
    assert "valve number 0 " in introduced


def test_fenced_code_is_cut_between_lines() -> None:
    lines = [
        f"localmcp restore saved{number}.localmcp   # in one transaction; the old file is kept" for number in range(60)
    ]
    chunks = split_checked("# Care\n\n```bash\n" + "\n".join(lines) + "\n```\n", markup="markdown")
    assert len(chunks) > 2
    assert all(chunk.text.endswith("is kept\n") for chunk in chunks[:-1])


def test_small_siblings_share_a_chunk_but_not_across_parents():
    sections = "".join(f"## Option {number}\n\nTurns it on.\nOff by default.\n\n" for number in range(30))
    chunks = split_checked(f"# One\n\n{sections}# Two\n\n{sections}")
    assert 4 <= len(chunks) <= 8
    assert not any("Option" in chunk.headings[-1] and "# Two" in chunk.text for chunk in chunks)
    later = next(chunk for chunk in chunks if chunk.text.startswith("## Option"))
    assert later.headings == ("One", later.text.splitlines()[0].removeprefix("## "))


def test_a_hash_in_fenced_code_or_front_matter_is_no_heading():
    text = "---\ntitle: x\n# note\n---\n\n# Real\n\n```sh\n# comment\nmake\n```\n\nText.\n"
    assert [chunk.headings for chunk in split_checked(text, target=8, limit=60)][-1] == ("Real",)
    assert all(set(chunk.headings) <= {"Real"} for chunk in split_checked(text, target=8, limit=60))


def test_restructured_text_titles_nest_by_the_order_of_their_underlines():
    body = "word " * 190
    text = f"=====\nGuide\n=====\n\n{body}\n\nSetup\n-----\n\n{body}\n\na | b\n--+--\n"
    assert [chunk.headings for chunk in split_checked(text, "plain")][:2] == [("Guide",), ("Guide", "Setup")]


def test_code_is_cut_at_top_level_blocks():
    functions = [f"def f{n}(x):\n    y = x + {n}\n\n    return [y, x, {n}, y * x, x - y]\n" for n in range(40)]
    chunks = split_checked("\n\n".join(functions), "code")
    assert all(chunk.text.startswith("def f") and chunk.kind == "code" for chunk in chunks)


def test_mostly_fenced_chunks_are_code_and_the_others_prose():
    code = "```python\n" + "print(value)\n" * 40 + "```\n"
    chunks = split_checked(f"# Prose\n\n{'Some words. ' * 60}\n\n# Code\n\n{code}")
    assert [(chunk.headings, chunk.kind) for chunk in chunks] == [(("Prose",), "prose"), (("Code",), "code")]


def test_lines_and_pages_are_those_of_visible_text():
    chunks = split_checked("\r\n\r\none\r\ntwo\r\n\r\n", "plain", page_starts=[0, 7])
    assert [(c.first_line, c.last_line, c.first_page, c.last_page) for c in chunks] == [(3, 4, 1, 2)]


def test_embedded_text_is_title_path_and_stripped_text():
    chunk = split_checked("# Guide\n\n## Setup\n\nText.\n", title="Guide")[0]
    assert chunk.embedded_text("Manual").splitlines()[:2] == ["Manual", "Guide"]
    assert chunk.embedded_text("Guide") == "Guide\n# Guide\n\n## Setup\n\nText."
    assert chunk.embedded_text("") == "Guide\n# Guide\n\n## Setup\n\nText."
    assert split_checked("plain")[0].embedded_text("") == "plain"


def test_a_huge_prefix_is_shortened_and_the_innermost_heading_stays():
    text = "".join(f"{'#' * level} {'long words ' * 9}{level}\n\n" for level in range(1, 7)) + "word " * 150
    chunk = split_checked(text, title="T" * 400)[-1]
    assert len(chunk.headings) == 6
    prefix = chunk.embedded_text("T" * 400).removesuffix(chunk.text.strip())
    assert len(prefix.encode()) <= 193
    assert "long words" in prefix


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        ("0123456789abcdef" * 20_000, "markdown"),
        ("QmFzZTY0+" * 20_000, "plain"),
        ("The quick brown fox. " * 20_000, "code"),
        ("a\n" * 20_000, "plain"),
        ("# a\n" * 5_000, "markdown"),
        ("# h\n" + "> " * 300 + "x\n" + "[a](b\n" * 5_000, "markdown"),
        ("".join(f"{'#' * (n % 6 + 1)} h{n}\n" for n in range(3_000)), "markdown"),
        ("a" + " " * 300_000 + "b", "plain"),
        ("e" + "\u0301" * 40_000, "plain"),
    ],
    ids=["one word", "base64", "one line", "short lines", "headings", "nested", "deep", "spaces", "marks"],
)
def test_odd_large_documents_are_cut_like_any_other(text: str, markup: Markup):
    assert len(split_checked(text, markup)) >= 2


def test_addresses_and_the_date_of_a_mail_are_not_embedded_and_stay_in_its_text() -> None:
    header = "From: Lola Campos <lola@mail.example>\nTo: Nuria <nuria@home.example>\nDate: Sun, 18 Jul 2021 17:41\n"
    (chunk,) = split_checked(f"{header}\nWrite to <shop@mail.example>.", "plain", "Boots")
    assert "lola@mail.example" in chunk.text
    assert chunk.embedded_text("Boots") == "Boots\nFrom: Lola Campos\nTo: Nuria\n\nWrite to <shop@mail.example>."


@pytest.mark.parametrize("sentences", range(8, 24, 3))
def test_a_caption_stays_with_its_table(sentences: int) -> None:
    prose = "The pump of the well is looked after by the two of us. " * sentences
    rows = "".join(f"| valve {number} | a quarter |\n" for number in range(20))
    chunks = split_checked(f"{prose}\n\nTable 3. Turns of a valve\n\n| Valve | Turn |\n| --- | --- |\n{rows}\n{prose}")
    [captioned] = [chunk.text for chunk in chunks if "Table 3" in chunk.text]
    assert "valve 0 " in captioned


@pytest.mark.parametrize("question", ["**How long does it run?**", "Q: When does it stop?", "Wie lange läuft sie?"])
@pytest.mark.parametrize("markup", ["markdown", "plain"])
def test_a_question_stays_with_its_answer(markup: Markup, question: str) -> None:
    answers = [" ".join(f"Sentence {n} of answer {i} says it." for n in range(i * 7 % 12 + 3)) for i in range(14)]
    text = "# FAQ\n\n" + "\n\n".join(f"{question}\n\n{answer}" for answer in answers)
    chunks = split_checked(text, markup)
    assert len(chunks) > 5 and not any(chunk.text.strip().endswith(question) for chunk in chunks)


# ---------------------------------------------------------------- pages, sheets and authors


def cut(text, markup="plain", **places):
    chunks = split(Document("A text", text, "text", markup, "docs", **places), estimate_tokens)
    assert "".join(chunk.text for chunk in chunks) == text
    return chunks


def test_short_pages_are_passages_of_their_own():
    text, starts = join_pages(["The first page.", "The second page.", "", "The fourth page."])
    pages = [(chunk.text.strip(), chunk.first_page, chunk.last_page) for chunk in cut(text, page_starts=starts)]
    assert pages == [("The first page.", 1, 1), ("The second page.", 2, 2), ("The fourth page.", 4, 4)]


def test_only_a_sentence_crosses_a_page_and_a_heading_at_its_end_makes_none():
    text, starts = join_pages(["It ends. This sentence goes", "on overleaf. The next one is there."])
    first, second = cut(text, page_starts=starts)
    assert first.text.endswith("goes\n\non overleaf.") and (first.first_page, first.last_page) == (1, 2)
    assert (second.text.strip(), second.first_page) == ("The next one is there.", 2)
    text, starts = join_pages(["Chapter one", "Capitals begin something new. More."])
    assert [chunk.first_page for chunk in cut(text, page_starts=starts)] == [1, 2]


def test_sheets_are_cut_by_rows_and_keep_apart():
    lines = "".join(f"- n: {number}\n" for number in range(60))
    text = f"## A\n\n{lines}\n## B\n\n- 1\n- 2"
    second = text.index("## B")
    starts = ((0, 0), (6, 2), (second, 0), (second + 6, 40))
    chunks = cut(text, "markdown", row_starts=starts)
    spans = [(chunk.headings[-1], chunk.first_line, chunk.last_line) for chunk in chunks]
    assert spans[0][:2] == ("A", 2) and spans[-1] == ("B", 40, 41)
    assert all(last - first < MOST_ROWS for _, first, last in spans)
    assert [span[1] for span in spans[1:-1]] == [span[2] + 1 for span in spans[:-2]]


def test_what_only_repeats_others_is_found_by_word_only():
    text = "My answer.\n\n> Your question?"
    answer, quote = cut(text, appendix=10)
    assert (answer.kind, quote.kind, quote.text.strip()) == ("prose", "data", "> Your question?")


def test_the_nearest_heading_above_counts():
    text = "## Riscatto parziale\n\nMetà.\n\n## Riscatto totale\n\nTutto.\n\n### Costi\n\nNessuno."
    path = ("Fondo", "Riscatto parziale")
    assert path_at(text, text.index("Metà"), path) == path
    assert path_at(text, text.index("Tutto"), path) == ("Fondo", "Riscatto totale")
    assert path_at(text, text.index("Nessuno"), path) == ("Fondo", "Riscatto totale", "Costi")
    assert path_at("the end.\n\n## Next\n\nwords", 20, ("Fondo", "Before")) == ("Fondo", "Next")
    assert path_at("A\n===\n\nx\n\nB\n===\n\ny", 16, ("A",), underlined=True) == ("B",)
