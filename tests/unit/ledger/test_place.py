from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.base.errors import LedgerError, LedgerPathError
from lastgood.ledger import place
from lastgood.ledger.place import check_place, default_ledger, storage_kind

# Lines as proc(5) describes them, for made-up mounts.
TABLE = """\
21 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
30 21 0:25 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw
40 21 0:50 / /home rw,relatime shared:9 master:3 - nfs4 filer:/export/home rw,vers=4.2
41 40 0:51 / /home/ann/fast rw - xfs /dev/sdb1 rw
42 21 0:52 / /scratch rw - lustre 10.0.0.1@o2ib:/fs1 rw
43 21 0:53 / /mnt/with\\040space rw - cifs //server/share rw
44 21 0:54 / /mnt/fs rw - fuse.sshfs ann@host:/srv rw
45 21 0:55 / /mnt/overlay rw - fuse.fuse-overlayfs fuse-overlayfs rw
46 21 0:56 / /mnt/what rw - fuse.something something rw
47 21 0:57 / /mnt/twice rw - nfs filer:/x rw
48 21 0:58 / /mnt/twice rw - ext4 /dev/sdc1 rw
49 21 0:59 / /gpfs/fs0 rw - gpfs fs0 rw
50 21 0:60 / /share rw - 9p share rw
51 21 0:61 / /proc rw - proc proc rw
52 21 0:62 / /sys/fs/cgroup rw - cgroup2 cgroup rw
53 21 0:63 / /dev/pts rw - devpts devpts rw
a line that means nothing
"""


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch) -> Path:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(TABLE)
    monkeypatch.setattr(place, "MOUNTS", mounts)
    monkeypatch.setattr(storage_kind, "__kwdefaults__", {"mounts": mounts})
    return mounts


@pytest.mark.parametrize(
    ("path", "fs_type", "is_network"),
    [
        ("/var/lib/x", "ext4", False),
        ("/home/ann/.local/state/lastgood/ledger.db", "nfs4", True),
        ("/home/ann/fast/ledger.db", "xfs", False),
        ("/homeless/ledger.db", "ext4", False),
        ("/scratch/x/ledger.db", "lustre", True),
        ("/mnt/with space/ledger.db", "cifs", True),
        ("/mnt/fs/ledger.db", "fuse.sshfs", True),
        ("/mnt/overlay/ledger.db", "fuse.fuse-overlayfs", False),
        ("/mnt/what/ledger.db", "fuse.something", None),
        ("/mnt/twice/ledger.db", "ext4", False),
        ("/gpfs/fs0/ledger.db", "gpfs", True),
        ("/share/ledger.db", "9p", None),
    ],
)
def test_the_mount_table_says_what_a_path_lies_on(path, fs_type, is_network):
    kind = storage_kind(path)
    assert (kind.fs_type, kind.is_network) == (fs_type, is_network)


def test_memory_is_called_volatile():
    assert storage_kind("/dev/shm/ledger.db").is_volatile
    assert not storage_kind("/var/ledger.db").is_volatile


def test_a_system_without_a_mount_table_cannot_tell(table):
    table.unlink()
    assert storage_kind("/var/ledger.db").is_network is None


def test_a_network_file_system_is_refused_with_the_reason_and_a_usable_path(tmp_path):
    with pytest.raises(LedgerError) as caught:
        default_ledger(environment={"HOME": "/home/ann", "XDG_STATE_HOME": ""})
    message = str(caught.value)
    assert "nfs4 from filer:/export/home at /home" in message
    assert "mapped memory" in message
    assert "export LASTGOOD_LEDGER=/" in message
    usable = Path(caught.value.next.split("=")[1])
    assert check_place(usable) == usable


@pytest.mark.parametrize("path", ["/proc/x", "/sys/fs/cgroup/a/x", "/dev/pts/x"])
def test_a_view_of_the_kernel_is_refused_with_a_usable_path(path):
    with pytest.raises(LedgerPathError, match="pseudo file system") as caught:
        check_place(Path(path))
    usable = Path(caught.value.next.split("=")[1])
    assert check_place(usable) == usable


def test_the_variable_decides_over_the_state_folder(tmp_path):
    environment = {"LASTGOOD_LEDGER": str(tmp_path / "mine.db"), "XDG_STATE_HOME": "/var/state"}
    assert default_ledger(environment=environment) == tmp_path / "mine.db"
    assert default_ledger(environment={"XDG_STATE_HOME": "/var/state"}) == Path(
        "/var/state/lastgood/ledger.db"
    )
    assert default_ledger(environment={"HOME": "/root", "XDG_STATE_HOME": "not/absolute"}) == Path(
        "/root/.local/state/lastgood/ledger.db"
    )


def test_a_network_path_in_the_variable_is_refused_too():
    with pytest.raises(LedgerError, match="lustre"):
        default_ledger(environment={"LASTGOOD_LEDGER": "/scratch/ledger.db"})
