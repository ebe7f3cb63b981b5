"""HTTP on this machine: MCP, the original's endpoints, and key management, on one port."""
