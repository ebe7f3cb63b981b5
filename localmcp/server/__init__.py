"""The faces an MCP client talks to."""
