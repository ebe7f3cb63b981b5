"""Ranking of tools for a request, for `tool_search` and `ask`."""
