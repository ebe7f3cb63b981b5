"""The console entry point: a plain `serve` takes the short way to its first reply, everything else goes to the CLI."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line in `sys.argv`."""
    _open_streams()
    # Threads of numpy's own, which nothing here is large enough for, take 60 ms of the processor at its import.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    profile, rest = take_profile(sys.argv[1:])
    plain, database = plain_serve(rest)
    if plain and profile != "":
        # The CLI's imports take several times as long as the whole first reply.
        from localmcp.server import handshake

        handshake.main(database, profile)
    try:
        from localmcp.cli import main as cli_main

        cli_main()
    except KeyboardInterrupt:
        # Pressed while the modules are imported, before there is a command to stop.
        sys.exit(130)


def _open_streams() -> None:
    """Open what is closed or missing: Python has None for it, and the next file would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))


def take_profile(arguments: list[str]) -> tuple[str | None, list[str]]:
    """Return the value of `--profile` (None without one, empty when it is missing), and the other words."""
    words: list[str] = []
    profile: str | None = None
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--profile":
            profile = value if equals else next(rest, "")
        else:
            words.append(word)
    return profile, words


def plain_serve(arguments: list[str]) -> tuple[bool, str | None]:
    """Return whether the words are `serve` with nothing but `--db FILE` before or after it, and that file.

    Any other option (`--http`, `--help`, a misspelled one) is for the CLI, which knows them all.
    """
    words: list[str] = []
    database: str | None = None
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if name != "--db":
            words.append(word)
            continue
        database = value if equals else next(rest, "")
    return words == ["serve"] and database != "", database


if __name__ == "__main__":
    main()
