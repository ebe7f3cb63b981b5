"""Feeds and outlines are read as what a person sees in a reader of news."""

import pytest

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document
from localmcp.readers.readers import read_bytes

RSS = """<?xml version="1.0" encoding="ISO-8859-1"?>
<!-- made by hand -->
<rss version="2.0" xmlns:c="http://purl.org/rss/1.0/modules/content/" xmlns:i="http://itunes.example/">
<channel><title>Harbor log</title><image><title>Logo</title></image><description>A small harbor</description>
<item><title>Dredging begins</title><i:title>Dredging begins</i:title><link>https://x.example/1</link>
<pubDate>Mon, 02 Mar 2026 08:00:00 GMT</pubDate>
<description>&lt;p&gt;Moorings &lt;b&gt;4&lt;/b&gt; close.&lt;/p&gt;</description>
</item>
<item><title>Ferr\u00e9</title><description>From April</description>
<c:encoded><![CDATA[<p>It leaves at 7:15.</p>]]></c:encoded></item>
</channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Cellar</title>
<entry><title>Sulphur &lt;SO2&gt;</title><link rel="edit" href="https://x.example/edit"/><link href="https://x.example/2?a=1&amp;copy=2"/>
<author><name>Ugo</name></author><updated>2026-01-03</updated>
<content type="xhtml">
<div xmlns="http://www.w3.org/1999/xhtml"><p>Thirty <em>milligrams</em> &lt; 40.</p></div></content></entry></feed>"""
OPML = """<opml version="2.0"><head><title>My feeds</title></head><body>
<outline text="Science"><outline text="Birds" xmlUrl="https://b.example/feed"/></outline>
<outline text="Kitchen" _note="buy gaskets"/></body></opml>"""


def read(xml: str, name: str = "feed.xml") -> Document:
    return read_bytes(xml.encode("latin-1"), name)


def test_a_feed_is_its_entries_with_date_address_and_whole_text() -> None:
    document = read(RSS)
    assert document.title == "Harbor log"
    assert document.text.split("\n\n") == [
        "# Harbor log",
        "A small harbor",
        "## Dredging begins",
        "Mon, 02 Mar 2026 08:00:00 GMT · https://x.example/1",
        "Moorings 4 close.",
        "## Ferré",
        "It leaves at 7:15.",
        "",
    ]


def test_an_atom_feed_has_its_author_and_the_address_of_the_page() -> None:
    assert read(ATOM).text.split("\n\n")[1:4] == [
        "## Sulphur <SO2>",
        "2026-01-03 · Ugo · https://x.example/2?a=1&copy=2",
        "Thirty milligrams < 40.",
    ]


@pytest.mark.parametrize("name", ["subs.opml", "subs", "subs.xml"])
def test_an_outline_is_a_list_with_notes_and_addresses(name: str) -> None:
    document = read(OPML, name)
    assert document.title == "My feeds"
    assert document.text.endswith("- Science\n  - Birds: https://b.example/feed\n- Kitchen: buy gaskets")


def test_a_feed_that_was_cut_short_is_read_up_to_there() -> None:
    assert "Dredging begins" in read(RSS[:600]).text


def test_a_feed_does_not_grow_by_entities() -> None:
    bomb = '<!DOCTYPE rss SYSTEM "x"><rss><channel><title>&a;</title><item><title>b</title></item></channel></rss>'
    assert "## b" in read(bomb).text
    with pytest.raises(UnreadableDocument):
        read("<rss><!ENTITY a 'b'></rss>")
