"""The interfaces an MCP client talks to."""
