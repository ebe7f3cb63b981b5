"""Quick starts: short guides, imported, found in spite of typos, and worked through."""
