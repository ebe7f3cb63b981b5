"""The terminal house: see, search and run everything in one file."""
