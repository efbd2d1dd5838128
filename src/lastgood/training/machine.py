"""What this run runs on, for every event that it records: versions, firmware where present, and the topology."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

from lastgood import __version__
from lastgood.fleet.topology import Topology, one_host_topology

_FILES = {
    "nvidia_driver": Path("/sys/module/nvidia/version"),
    "amdgpu_driver": Path("/sys/module/amdgpu/version"),
    "bios": Path("/sys/class/dmi/id/bios_version"),
    "board_firmware": Path("/sys/class/dmi/id/bios_release"),
}
"""Where the kernel shows a driver or a firmware version; what is not there is left out, never guessed."""


def machine_versions() -> dict[str, str]:
    """Return what can be told without importing torch; a rank adds what it really imported."""
    found = {"lastgood": __version__, "kernel": os.uname().release, "machine": os.uname().machine}
    for package in ("torch", "xxhash"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    for name, path in _FILES.items():
        try:
            text = path.read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            continue
        if text:
            found[name] = text
    return found


def run_topology(world: int) -> Topology:
    """Return the topology of a run on this host; a changed set of processors is another topology."""
    processors = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    return one_host_topology(
        world,
        host=os.uname().nodename,
        release=__version__,
        attributes={"interconnect": "loopback", "processors": processors},
    )
