"""Where the ledger lies when nobody says: on a disk of this machine, never on a network file system.

SQLite's write-ahead log shares memory between processes through a mapped file. Network file systems do not keep
that promise between hosts, and ledgers there are lost; clusters put home folders on them, so this is the common
case and not the rare one. The refusal names a path that works.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lastgood.base.errors import LedgerPathError

MOUNTS = Path("/proc/self/mountinfo")
VARIABLE = "LASTGOOD_LEDGER"
NETWORK_TYPES = frozenset((
    "nfs", "nfs3", "nfs4", "lustre", "gpfs", "mmfs", "cifs", "smb", "smb2", "smb3", "smbfs", "ceph", "glusterfs",
    "beegfs", "panfs", "wekafs", "pvfs2", "orangefs", "afs", "coda", "ncpfs", "ocfs2", "gfs", "gfs2", "vastnfs",
    "daos", "acfs",
))  # fmt: skip
"""Types whose files other hosts may have open too (cluster file systems included)."""
HOST_SHARE_TYPES = frozenset(("9p", "virtiofs", "vboxsf", "hgfs", "prl_fs"))
"""A folder of a virtual machine's own host, or a sandbox's root: nobody can tell from inside what is behind it."""
NETWORK_FUSE_WORDS = (
    "sshfs", "s3", "gcs", "goofys", "rclone", "ceph", "gluster", "beegfs", "juicefs", "blob", "hdfs", "davfs",
    "alluxio", "dfuse", "mfs", "lizard",
)  # fmt: skip
LOCAL_FUSE_WORDS = ("fuseblk", "overlayfs", "mergerfs", "lxcfs", "ntfs", "exfat", "bindfs")
PSEUDO_TYPES = frozenset((
    "proc", "sysfs", "cgroup", "cgroup2", "devpts", "debugfs", "tracefs", "securityfs", "configfs", "pstore", "bpf",
    "mqueue", "hugetlbfs", "autofs", "binfmt_misc", "efivarfs", "fusectl", "fuse.lxcfs", "nsfs", "rpc_pipefs",
    "selinuxfs", "smackfs", "nfsd", "resctrl",
))  # fmt: skip
"""Views of the kernel that look like files: nothing that is written there is kept."""
VOLATILE_TYPES = frozenset(("tmpfs", "ramfs", "devtmpfs"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageKind:
    """What kind of storage a path lies on."""

    path: Path
    mount_point: str
    fs_type: str
    """As the kernel names it; `unknown` when it did not say."""
    device: str
    is_network: bool | None
    """None when it could not be told."""
    is_volatile: bool
    """True for memory: gone after a reboot."""
    is_pseudo: bool = False
    """True for a view of the kernel, which holds no files of ours at all."""


def default_ledger(*, environment: Mapping[str, str] | None = None) -> Path:
    """The ledger's path: `$LASTGOOD_LEDGER`, else a state folder of this user on this machine.

    Raises:
        LedgerPathError: No ledger can lie there; the message names a place where one can.
    """
    environment = os.environ if environment is None else environment
    named = environment.get(VARIABLE)
    path = Path(named).expanduser() if named else default_folder(environment) / "ledger.db"
    return check_place(path, environment=environment)


def default_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The state folder of this user on this machine: where the ledger lies when nobody names one, and made for it."""
    environment = os.environ if environment is None else environment
    home = environment.get("HOME") or os.path.expanduser("~")
    state = environment.get("XDG_STATE_HOME") or ""
    # The XDG rule: a relative path in the variable is to be ignored.
    base = Path(state) if os.path.isabs(state) else Path(home) / ".local" / "state"
    return base / "lastgood"


def check_place(path: Path, *, environment: Mapping[str, str] | None = None) -> Path:
    """The path itself, made absolute, when a ledger may lie there.

    Raises:
        LedgerPathError: It is on a network file system, or on one that holds no files.
    """
    path = Path(os.path.abspath(path))
    kind = storage_kind(path)
    if kind.is_network or kind.is_pseudo:
        usable = _usable_path(os.environ if environment is None else environment)
        sort = "a pseudo file system" if kind.is_pseudo else "a network file system"
        raise LedgerPathError(
            f"a ledger cannot lie on {sort}",
            where=str(path),
            found=f"{kind.fs_type} from {kind.device} at {kind.mount_point}",
            needs="a disk of this machine"
            if kind.is_pseudo
            else "a disk of this machine: the write-ahead log is shared through mapped memory, "
            "which such a file system does not keep the same between hosts",
            next=f"write: export {VARIABLE}={usable}",
            code="LG-L10",
        )
    return path


def storage_kind(path: str | os.PathLike[str], *, mounts: Path = MOUNTS) -> StorageKind:
    """What the path (or its nearest existing parent) lies on, as the kernel's mount table says."""
    target = Path(os.path.realpath(path))
    best: tuple[str, str, str] | None = None
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        lines = []
    for line in lines:
        mount = _parse_mount(line)
        if mount is None or not target.is_relative_to(mount[0]):
            continue
        # Of two mounts at one point the later one hides the earlier.
        if best is None or len(mount[0]) >= len(best[0]):
            best = mount
    if best is None:
        return StorageKind(
            path=target, mount_point="", fs_type="unknown", device="", is_network=None, is_volatile=False
        )  # fmt: skip
    return StorageKind(
        path=target,
        mount_point=best[0],
        fs_type=best[1],
        device=best[2],
        is_network=_is_network(best[1], best[2]),
        is_volatile=best[1] in VOLATILE_TYPES,
        is_pseudo=best[1] in PSEUDO_TYPES,
    )


def _parse_mount(line: str) -> tuple[str, str, str] | None:
    """Mount point, type and device of one line of mountinfo (proc(5)); the number of optional fields varies."""
    left, separator, right = line.partition(" - ")
    fields, rest = left.split(" "), right.split(" ")
    if not separator or len(fields) < 6 or len(rest) < 2:
        return None
    return _unescape(fields[4]), rest[0], _unescape(rest[1])


def _unescape(text: str) -> str:
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, character)
    return text


def _is_network(fs_type: str, device: str) -> bool | None:
    name = fs_type.lower()
    if name in NETWORK_TYPES:
        return True
    if name in HOST_SHARE_TYPES:
        return None
    if name.startswith("fuse"):
        words = f"{name} {device.lower()}"
        if any(word in words for word in NETWORK_FUSE_WORDS):
            return True
        return False if any(word in words for word in LOCAL_FUSE_WORDS) else None
    return False


def _usable_path(environment: Mapping[str, str]) -> Path:
    """A place that is not a network file system, the most durable first."""
    user = f"lastgood-{os.getuid()}"
    folders = [
        Path(environment.get("XDG_STATE_HOME") or "/nonexistent"),
        Path("/var/lib") / user,
        Path("/local"),
        Path("/scratch"),
        Path("/var/tmp") / user,  # noqa: S108 - a suggestion to a person
        Path(tempfile.gettempdir()) / user,
    ]
    kinds = {f: storage_kind(f) for f in folders if _is_writable(f)}
    usable = [f for f, kind in kinds.items() if kind.is_network is False and not kind.is_pseudo]
    durable = [f for f in usable if not kinds[f].is_volatile]
    best = (durable or usable or [Path(tempfile.gettempdir()) / user])[0]
    return best / "ledger.db"


def _is_writable(folder: Path) -> bool:
    """True when the folder, or the nearest parent that exists, can be written by this user."""
    existing = next((p for p in (folder, *folder.parents) if p.exists()), None)
    return existing is not None and existing != Path("/") and os.access(existing, os.W_OK | os.X_OK)
