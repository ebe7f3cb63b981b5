"""Tables in documents: found, described, and asked in SQL."""
