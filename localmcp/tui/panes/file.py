"""File: its size, backups, packs, mounts, models, settings, and how well it answers."""

from localmcp.tui.command_lists import FILE_COMMANDS, backups_of, languages_of, mounts_of, settings_of
from localmcp.tui.command_pane import CommandPane


class FilePane(CommandPane):
    TITLE, KEY_GROUP = "File", "commands"
    COMMANDS = FILE_COMMANDS
    THINGS = {"Models": languages_of, "Backups": backups_of, "Packs": mounts_of, "Settings": settings_of}
    ABOUT = (
        "What is done to the file as a whole: backups, packs to give away, other files beside it, models, settings, "
        "and an evaluation of the search. enter runs what is highlighted; what changes something is shown or asked "
        "first. y copies the command line that does the same."
    )
