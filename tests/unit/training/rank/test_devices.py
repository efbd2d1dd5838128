"""A device that a rank has opened counts; what everybody may open at once does not."""

import os

from lastgood.training.rank.devices import holds_device


def test_null_random_and_terminals_are_no_devices_to_wait_for():
    opened = [os.open(path, os.O_RDONLY) for path in ("/dev/null", "/dev/urandom", "/dev/zero")]
    opened += os.openpty()
    try:
        assert not holds_device()
    finally:
        for descriptor in opened:
            os.close(descriptor)


def test_any_other_character_device_is(monkeypatch):
    major = os.major
    accelerator = 195
    with open("/dev/null") as file:
        opened = os.fstat(file.fileno()).st_rdev
        monkeypatch.setattr(
            os, "major", lambda device: accelerator if device == opened else major(device)
        )
        assert holds_device()
