"""The engine: collections, keyword and vector indexes, fusion."""
