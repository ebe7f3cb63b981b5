"""Tools of other MCP servers, which localmcp starts and calls as a client."""
