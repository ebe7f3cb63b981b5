"""Passages keep to one page, one sheet and one author, and know the heading above any word."""

from localmcp.library.reading import estimate_tokens
from localmcp.readers.chunking import MOST_ROWS, split
from localmcp.readers.document import Document, join_pages
from localmcp.readers.outline import path_at


def cut(text, markup="plain", **places):
    chunks = split(Document("A text", text, "text", markup, "docs", **places), estimate_tokens)
    assert "".join(chunk.text for chunk in chunks) == text
    return chunks


def test_short_pages_are_passages_of_their_own():
    text, starts = join_pages(["The first page.", "The second page.", "", "The fourth page."])
    pages = [(chunk.text.strip(), chunk.first_page, chunk.last_page) for chunk in cut(text, page_starts=starts)]
    assert pages == [("The first page.", 1, 1), ("The second page.", 2, 2), ("The fourth page.", 4, 4)]


def test_only_a_sentence_crosses_a_page():
    text, starts = join_pages(["It ends. This sentence goes", "on overleaf. The next one is there."])
    first, second = cut(text, page_starts=starts)
    assert first.text.endswith("goes\n\non overleaf.") and (first.first_page, first.last_page) == (1, 2)
    assert (second.text.strip(), second.first_page) == ("The next one is there.", 2)


def test_a_heading_at_the_end_of_a_page_does_not_make_a_sentence():
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
