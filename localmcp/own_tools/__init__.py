"""Tools that come from elsewhere: the person's own programs, queries, HTTP calls, Python functions."""
