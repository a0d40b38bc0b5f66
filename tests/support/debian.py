"""Debian's packages, unpacked into a folder: a sysroot, or a system to be entered.

Nothing is installed on this machine and no root is needed: apt works in folders of its
own, and checks signatures and checksums with Debian's keys. The mirror is
`DEBIAN_MIRROR`, or else the one that the machine's apt uses, with its settings of
proxies.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
REPOSITORY = Path(__file__).parents[2]


class Failed(Exception):
    """A command that failed, with what it said last."""


def run(*command: str | Path, folder: Path) -> str:
    """Run a command in a folder, and return its output."""
    try:
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except OSError as error:
        raise Failed(f"{command[0]} cannot be run: {error.strerror}") from error
    if ran.returncode:
        said = (ran.stderr or ran.stdout).strip().splitlines() or ["nothing"]
        raise Failed(f"{command[0]} failed: {said[-1]}")
    return ran.stdout


def mirror() -> str:
    """Where packages come from."""
    if named := os.environ.get("DEBIAN_MIRROR"):
        return named
    asked = "--format=$(REPO_URI)", "Label: Debian", "Created-By: Packages"
    addresses = run("apt-get", "indextargets", *asked, folder=Path("/")).split()
    if not addresses:
        raise Failed("apt knows no mirror of Debian: set DEBIAN_MIRROR")
    return addresses[0].rstrip("/")


def apt(work: Path, architecture: str | None, *command: str) -> None:
    """Run apt-get on a machine of its own, on which nothing is installed."""
    settings = {
        "Dir::Etc::SourceList": work / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State": work,
        "Dir::State::Lists": work / "lists",
        "Dir::State::Status": work / "status",
        "Dir::Cache": work,
        "Dir::Cache::Archives": work / "archives",
        "APT::Sandbox::User": getpass.getuser(),
        "APT::Install-Recommends": "0",
        "APT::Update::Error-Mode": "any",
        "Acquire::Languages": "none",
        "Acquire::Retries": "5",
        "Debug::NoLocking": "1",
    }
    if architecture:
        settings["APT::Architecture"] = architecture
        settings["APT::Architectures"] = architecture
    options = [f"-o{name}={value}" for name, value in settings.items()]
    # `download` writes to the folder that it is run in.
    command = ("--quiet", "--yes", *options, *command)
    run("apt-get", *command, folder=work / "archives")


def prepare(
    work: Path,
    kind: str,
    suites: Sequence[str],
    component: str,
    architecture: str | None = None,
) -> None:
    """Make the folders of a machine that knows these suites."""
    for folder in ("lists/partial", "archives/partial"):
        (work / folder).mkdir(parents=True)
    (work / "status").touch()
    address = mirror()
    sources = [
        f"{kind} [signed-by={KEYS}] {address} {suite} {component}\n" for suite in suites
    ]
    (work / "sources.list").write_text("".join(sources))
    apt(work, architecture, "update")


def download(
    work: Path,
    suites: Sequence[str],
    packages: Sequence[str],
    *,
    component: str = "main",
    architecture: str | None = None,
    alone: bool,
) -> list[Path]:
    """Download packages of the last suite, alone or with all that they depend on."""
    prepare(work, "deb", suites, component, architecture)
    suite = f"--target-release={suites[-1]}"
    if alone:
        apt(work, architecture, suite, "download", *packages)
    else:
        apt(work, architecture, suite, "--download-only", "install", *packages)
    return sorted(work.glob("archives/*.deb"))


def source(suite: str, package: str, folder: Path) -> Path:
    """Unpack the source of a package, without Debian's changes, into a new folder."""
    work = folder.with_suffix(".downloaded")
    for each in (work, folder):
        shutil.rmtree(each, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        prepare(work, "deb-src", [suite], "main")
        apt(work, None, "source", "--download-only", "--tar-only", package)
        [archive] = work.glob(f"archives/{package}_*.orig.tar.*")
        tar = "tar", "--extract", "--strip-components=1", "--file", archive
        run(*tar, folder=folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def unpack(archives: Sequence[Path], root: Path) -> None:
    """Unpack packages into a folder, and note which they were."""
    for archive in archives:
        run("dpkg-deb", "--extract", archive, root, folder=root)
    (root / "packages").write_text("".join(f"{each.name}\n" for each in archives))


@dataclass(frozen=True)
class System:
    """Packages in a folder below build/debian."""

    name: str
    suite: str
    architecture: str
    packages: tuple[str, ...]
    alone: bool = False
    """Without what they depend on."""
    added: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Packages of other architectures, alone."""

    @property
    def root(self) -> Path:
        """Where it is unpacked."""
        return REPOSITORY / "build/debian" / self.name

    def fetch(self) -> Path:
        """Unpack it, unless that was done with the same packages."""
        # A change of the description fetches again.
        mark, said = self.root / "description", f"{self}\n"
        if mark.exists() and mark.read_text() == said:
            return self.root
        work, root = (
            self.root.with_suffix(end) for end in (".downloaded", ".unpacked")
        )
        for folder in (work, root, self.root):
            shutil.rmtree(folder, ignore_errors=True)
        root.mkdir(parents=True)
        try:
            archives: list[Path] = []
            groups = (
                (self.architecture, self.packages, self.alone),
                *((of, packages, True) for of, packages in self.added),
            )
            for architecture, packages, alone in groups:
                archives += download(
                    work / architecture,
                    [self.suite],
                    packages,
                    architecture=architecture,
                    alone=alone,
                )
            unpack(archives, root)
            relink(root)
            (root / "description").write_text(said)
            root.rename(self.root)
        finally:
            shutil.rmtree(work, ignore_errors=True)
            shutil.rmtree(root, ignore_errors=True)
        return self.root


def relink(root: Path) -> None:
    """Make absolute links relative, which linkers follow outside of `root`, too."""
    for folder, folders, files in os.walk(root):
        for path in (Path(folder, name) for name in (*folders, *files)):
            if path.is_symlink() and (target := path.readlink()).is_absolute():
                path.unlink()
                inside = root / target.relative_to("/")
                path.symlink_to(os.path.relpath(inside, path.parent))


ENTER = """
root=$1 emulator=$2 magic=$3
shift 3
for each in /dev /proc "$PWD"; do
    mkdir -p "$root$each"
    mount --rbind "$each" "$root$each"
done
mkdir -p "$root/tmp" "$root/root"
if [ "$emulator" ]; then
    formats=$root/proc/sys/fs/binfmt_misc
    mount -t binfmt_misc none "$formats"
    printf %s ":emulated:M::$magic:$emulator:F" >"$formats/register"
fi
exec chroot "$root" /usr/bin/env -i --chdir="$PWD" HOME=/root PATH=/usr/bin:/bin "$@"
"""
"""What a namespace of its own runs: mounts and formats of programs end with it."""

AARCH64 = (
    r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:"
    r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
)
"""How programs for 64-bit ARM begin, and which bits of that matter."""


def entered(
    root: Path, *command: str | Path, emulator: Path | None = None
) -> list[str]:
    """A command inside an unpacked system, which has the checkout at the same path.

    It is root there, and nothing here: changes outside of the two folders are refused.
    `NAME=value` before the command sets variables, and none is inherited.
    """
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "--kill-child"]
    shell = ["sh", "-euc", ENTER, "sh", str(root)]
    emulated = [str(emulator), AARCH64] if emulator else ["", ""]
    return [*namespace, "--fork", *shell, *emulated, *map(str, command)]
