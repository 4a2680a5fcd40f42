"""What job_container/user refuses, and how it tells who forbids namespaces."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nodectl.cli.checks import own_node_rights
from nodectl.cli.checks.check import FAIL, OK, WARN
from nodectl.kernel import _namespace, trust
from nodectl.launch.container import USER, own_namespaces, settings
from nodectl.plugin_api import PluginError
from nodectl.plugins.job_container import user
from nodectl.service.config_file import reader

HOST = os.uname().nodename.partition(".")[0]


def check(**keys: object) -> str:
    return settings.check(reader.build({"job_container_type": USER, **keys}))


def test_only_private_directories_can_be_configured() -> None:
    assert check() == ""
    assert check(container_dirs=["/tmp", "/scratch:noexec"], container_shared=True) == ""
    why = f"not with {USER}, which has private directories and nothing else"
    assert check(container_namespaces=["pid"]) == f"container_namespaces: {why}"
    both = check(container_net="veth", container_net_parent="br0", container_init_script="/bin/true")
    assert both == f"container_net, container_init_script: {why}"


def test_the_socket_is_in_no_directory_that_a_job_has_for_itself() -> None:
    assert check(socket="/tmp/mine/sock") == ""
    assert "the socket /tmp/sock lies in /tmp, which each job has for itself" in check(socket="/tmp/sock")


def test_storage_is_in_a_directory_of_this_host() -> None:
    def base(path: str, plugin: str = USER) -> str:
        config = {"job_container_type": plugin, "container_base_path": path, "node_name": "n"}
        return settings.base_path(reader.build(config))

    assert base("/home/me/containers") == f"/home/me/containers/{HOST}"
    assert base("/disk/%h.%n") == f"/disk/{HOST}.n"
    assert base("/disk", "job_container/namespace") == "/disk"


def test_namespaces_cannot_be_asked_for() -> None:
    config = reader.build({"job_container_type": USER})
    with pytest.raises(ValueError, match="pid: job_container/user has private directories"):
        settings.of_job(config, ["pid"])
    assert settings.of_job(config, [])["type"] == USER


def test_root_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(PluginError, match='root has "job_container/namespace"'):
        user.init()


@pytest.mark.parametrize(
    ("number", "values", "words"),
    [
        (errno.ENOSPC, {}, "max_user_namespaces is 0, and so many there are; only root can raise it"),
        (errno.EPERM, {"clone": "0", "apparmor": "0"}, "unprivileged_userns_clone is 0; only root can change it"),
        (errno.EACCES, {"clone": "1", "apparmor": "1"}, "apparmor_restrict_unprivileged_userns is 1; only root"),
        (errno.EPERM, {"clone": "1", "apparmor": "0"}, "a filter of system calls, a security module or a chroot"),
    ],
)
def test_who_forbids_them_is_told(
    number: int, values: dict[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, clone, apparmor = (
        tmp_path / name
        for name in ("max_user_namespaces", "unprivileged_userns_clone", "apparmor_restrict_unprivileged_userns")
    )
    most.write_text("0\n")
    for path, name in ((clone, "clone"), (apparmor, "apparmor")):
        path.write_text(f"{values.get(name, '1')}\n")
    monkeypatch.setattr(own_namespaces, "_MOST", str(most))
    monkeypatch.setattr(own_namespaces, "_SWITCHES", {str(clone): "0", str(apparmor): "1"})

    def forbidden(_: int) -> None:
        raise OSError(number, f"{os.strerror(number)} (unshare)")

    monkeypatch.setattr(_namespace, "unshare", forbidden)
    with pytest.raises(OSError, match=f"make a user namespace: .*: .*{words}") as raised:
        own_namespaces.make(1000, 1000, lambda: None)
    assert raised.value.errno == number


def test_what_fails_inside_is_told_with_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_namespaces, "_enter_new", lambda _uid, _gid: None)

    def fail() -> None:
        raise OSError(errno.EACCES, "Permission denied", "/disk/containers")

    with pytest.raises(OSError, match=r"^\[Errno 13\] /disk/containers: Permission denied$"):
        own_namespaces.make(1000, 1000, fail)


def test_a_child_that_dies_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_namespaces, "_enter_new", lambda _uid, _gid: os._exit(1))
    with pytest.raises(OSError, match="its process died"):
        own_namespaces.make(1000, 1000, lambda: None)


@pytest.mark.parametrize(
    ("plugin", "why", "level", "words"),
    [
        ("job_container/none", "", OK, 'job_container_type = "job_container/user" would give'),
        ("job_container/none", "forbidden", WARN, "cannot have a /tmp of their own: forbidden"),
        (USER, "", OK, "namespaces can be made"),
        (USER, "forbidden", FAIL, 'until then job_container_type = "job_container/none"'),
        ("job_container/namespace", "", FAIL, 'job_container_type = "job_container/user"'),
        ("job_container/sites_own", "forbidden", WARN, "was not tried"),
    ],
)
def test_doctor_judges_by_what_is_configured(plugin: str, why: str, level: str, words: str) -> None:
    found = own_node_rights.containers(plugin, why)
    assert found.level == level
    assert words in str(found)


def test_who_may_own_a_path_is_told(tmp_path: Path) -> None:
    os.chown(tmp_path, 4_000_000, -1) if os.geteuid() == 0 else None
    owners = trust.ROOT | {12345}
    with pytest.raises(trust.Untrusted, match=r"belongs to uid \d+ and not to root or uid 12345; chown it"):
        trust.resolve(str(tmp_path), owners)
