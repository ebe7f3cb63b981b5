"""The terminal interface: see, search and run everything in one file."""
