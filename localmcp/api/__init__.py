"""The Python API: `localmcp.open(file)` and what its methods return."""
