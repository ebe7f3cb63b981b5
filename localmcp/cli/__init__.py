"""The command line."""


def main() -> None:
    """Run the command line in `sys.argv`; ends the process."""
    # The package imports nothing, so that `serve` and the tests of the layers can name it for free.
    from localmcp.cli.program import run

    run()
