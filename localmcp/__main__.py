"""The console entry point: a plain `serve` takes the short way to its first reply, everything else goes to the CLI."""

import os
import sys


def main() -> None:
    """Run the command line in `sys.argv`."""
    # What is closed or missing is None, and the next file would get its number.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))
    # Threads of numpy's own, which nothing here is large enough for, take 60 ms of the processor at its import.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    options = plain_serve(sys.argv[1:])
    if options is not None:
        # The CLI's imports take several times as long as the whole first reply.
        from localmcp.server import program

        program.main(*options)
    try:
        from localmcp.cli.program import run

        run()
    except KeyboardInterrupt:
        # Pressed while the modules are imported, before there is a command to stop.
        sys.exit(130)


def plain_serve(arguments: list[str]) -> tuple[str | None, str | None] | None:
    """Return FILE and NAME of `serve` with nothing but `--db FILE` and `--profile NAME`; None for other words.

    Any other option (`--http`, `--help`, a misspelled one) is for the CLI, which knows them all.
    """
    options: dict[str, str | None] = {"--db": None, "--profile": None}
    words: list[str] = []
    unread = iter(arguments)
    for word in unread:
        name, equals, value = word.partition("=")
        if name in options:
            options[name] = value if equals else next(unread, "")
        else:
            words.append(word)
    database, profile = options.values()
    return (database, profile) if words == ["serve"] and "" not in (database, profile) else None


if __name__ == "__main__":
    main()
