"""What a bare Debian has of the machine that it runs on: the mirrors of packages. And what it leaves there: cgroups."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from debian.making import SUITE, run

# With these, programs find mirrors, and the certificates of those who stand between.
_TELLING = re.compile(
    r"(?i)(https?|ftp|all|no)_proxy|PIP_.*|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)  # fmt: skip
_OF_APT = ("sources.list", "sources.list.d", "trusted.gpg", "trusted.gpg.d", "keyrings", "auth.conf", "auth.conf.d")
_OF_PIP = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
_CERTIFICATES = ("usr/local/share/ca-certificates", "usr/share/keyrings")
_INDEX = re.compile(r"file:(?://)?(/[\w./+-]+)/")  # the files lie beside the index
_LINKS = re.compile(r"(?<=[\s=])/[\w./+-]+")
_NO_MIRRORS = {"/", "/etc/ssl/certs"}
_MOUNT = re.compile(r"^\S+ (\S+) cgroup2? ", re.MULTILINE)


def copy_mirrors(root: Path) -> dict[str, str]:
    """Gives the root, which nobody uses yet, this machine's mirrors; the variables of the environment that belong to
    them. Raises OSError, CannotMake.
    """
    if platform.freedesktop_os_release().get("VERSION_CODENAME") == SUITE:  # others have other packages
        for name in _OF_APT:
            _copy(Path("/etc/apt", name), root / "etc/apt" / name)
    acquiring = subprocess.run(["apt-config", "dump", "Acquire"], stdout=subprocess.PIPE, text=True, check=True).stdout
    (root / "etc/apt/apt.conf.d/90machine").write_text(acquiring)
    for name in _CERTIFICATES:
        _copy(Path("/", name), root / name)
    _copy(Path("/etc/resolv.conf").resolve(), root / "etc/resolv.conf")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 bare\n::1 localhost\n")
    (root / "etc/hostname").write_text("bare\n")
    of_pip = [Path(name).expanduser() for name in _OF_PIP]
    environment = {name: value for name, value in os.environ.items() if _TELLING.fullmatch(name)}
    told = [*environment.values()]
    for source, name in zip(of_pip, ("etc/pip.conf", "root/.pip/pip.conf", "root/.config/pip/pip.conf"), strict=True):
        _copy(source, root / name)
        told += [source.read_text()] if source.exists() else []
    lay_out(root, told)
    return environment


def _copy(source: Path, target: Path) -> None:
    """A file, or a directory in place of the one that is there."""
    if not source.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        run("cp", "-aLT", source, target)
    else:
        target.unlink(missing_ok=True)
        shutil.copy(source, target)


def lay_out(root: Path, told: Iterable[str]) -> None:
    """Finds mirrors that are directories in what configuration says; `inside` mounts them where they are here."""
    named = {path for text in told for path in _INDEX.findall(text) + _LINKS.findall(f" {text}")}
    links = root / "mirrors"
    links.mkdir()
    for number, path in enumerate(sorted(path for path in named - _NO_MIRRORS if Path(path).is_dir())):
        (root / path[1:]).mkdir(parents=True, exist_ok=True)
        (links / str(number)).symlink_to(path)


def remove_cgroups(names: set[str]) -> list[str]:
    """Removes the cgroups of these names with all below them; those that are still in use."""
    left = []
    for mount in _MOUNT.findall(Path("/proc/self/mounts").read_text(encoding="utf-8")) if names else ():
        for directory, below, _ in os.walk(mount):
            for name in names.intersection(below):
                left += _remove_all(f"{directory}/{name}")
    return left


def _remove_all(group: str) -> list[str]:
    left = []
    for directory, _, _ in os.walk(group, topdown=False):
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            continue
        except OSError:
            left.append(directory)
    return left
