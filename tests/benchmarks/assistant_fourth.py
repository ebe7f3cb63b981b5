"""15 questions to manuals, changelogs, mails, minutes and specifications: what an assistant reads, and with grep.

    python tests/benchmarks/assistant_fourth.py PLACE build
    python tests/benchmarks/assistant_fourth.py PLACE tasks

The library is what a Debian system holds besides /usr/share/doc's READMEs, whose questions are in
`assistant_third.jsonl`: manual pages as they are printed, Info manuals, Debian's changelogs; and 16 mails, minutes,
specifications and notes of a housing cooperative, written for it (`assistant_fourth.txt`). The questions in
`assistant_fourth.jsonl`, their facts and the words for grep were written from the documents, before any search.
They are asked as those of `assistant_third.py`.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from pathlib import Path

from assistant_fresh import write
from assistant_third import build_or_run

PAGES = """
    bash.1 chage.1 cp.1 date.1 dd.1 df.1 dpkg.1 find.1 flock.1 free.1 grep.1 gzip.1 ionice.1 join.1 journalctl.1
    kill.1 less.1 locale.1 logger.1 ls.1 make.1 more.1 nice.1 passwd.1 ps.1 script.1 sed.1 sort.1 ssh.1 su.1 tar.1
    taskset.1 top.1 update-alternatives.1 wall.1 xargs.1 xz.1
    apt.conf.5 apt_preferences.5 deb-changelog.5 deb-control.5 fstab.5 hosts.5 journald.conf.5 locale.5 login.defs.5
    nsswitch.conf.5 passwd.5 resolv.conf.5 shells.5 sources.list.5 ssh_config.5 systemd.exec.5 systemd.mount.5
    systemd.path.5 systemd.service.5 systemd.socket.5 systemd.timer.5 systemd.unit.5
    ascii.7 deb-version.7 glob.7 hier.7 regex.7 signal.7 systemd.time.7 units.7 utf-8.7
    adduser.8 apt-get.8 chroot.8 e2fsck.8 hwclock.8 mke2fs.8 mkswap.8 mount.8 tune2fs.8 useradd.8 vmstat.8
"""
PACKAGES = """
    bash bc bzip2 dash debianutils diffutils e2fsprogs ed gettext groff-base gzip less login lsof strace sysvinit-utils
    tar tmux tzdata
"""
PRINTED = {"MANWIDTH": "80", "MANOPT": "--no-hyphenation --no-justification", "LC_ALL": "C.UTF-8"}
INFO, PACKED = Path("/usr/share/info"), Path("/usr/share/doc")
LONGEST = 250_000
"""Characters of a document; longer manuals would take minutes to read."""
WRITTEN = Path(__file__).with_suffix(".txt")


def print_page(name: str) -> str:
    """Return a manual page as it is printed; "" if the system does not have it."""
    title, _, section = name.rpartition(".")
    page = subprocess.run(["man", section, title], env={**os.environ, **PRINTED}, capture_output=True, text=True).stdout
    return re.sub(r".\x08|\x1b\[[\d;]*m", "", page)


def unpacked(file: Path) -> str:
    """Return the text of a packed file; "" if the system does not have it."""
    return gzip.decompress(file.read_bytes()).decode("utf-8", "replace") if file.is_file() else ""


def read_documents() -> dict[str, str]:
    """Return what the system holds, by the name in the library."""
    pages = {f"man/{name}.txt": print_page(name) for name in PAGES.split()}
    manuals = {f"info/{file.name.removesuffix('.info.gz')}.txt": unpacked(file) for file in INFO.glob("*.info.gz")}
    packages = {f"changelogs/{name}.txt": unpacked(PACKED / name / "changelog.Debian.gz") for name in PACKAGES.split()}
    return pages | manuals | packages


def write_library(library: Path) -> None:
    for name, text in sorted(read_documents().items()):
        if 0 < len(text) < LONGEST:
            write(library / name, text)
    for document in WRITTEN.read_text(encoding="utf-8").split("=== ")[1:]:
        name, _, text = document.partition("\n")
        write(library / name, text)


if __name__ == "__main__":
    build_or_run(write_library, Path(__file__).with_suffix(".jsonl"))
