from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.base.clock import SystemClock
from lastgood.base.errors import LedgerError
from lastgood.ledger.masking import Masker, load_masker
from tests.unit.ledger.cases import some_event

MASKER = Masker(bytes(range(32)), names=["annika"])
USER = MASKER.pseudonym("user", "ann")


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ("core dumped: /home/ann/proj/train.py", ["ann", "proj", "train.py"]),
        ("/Users/ann/x and C:\\Users\\ann\\x", ["ann"]),
        ("mount /gpfs/home/ann failed", ["ann"]),
        ("/export/home/ann: stale file handle", ["ann"]),
        ("uid=1000(ann) killed", ["ann", "1000"]),
        ("job of user=ann, owner: ann", ["ann"]),
        ("session opened for user ann", ["ann"]),
        ("mail ann.smith@example.org", ["ann.smith"]),
        ("clone https://ann:hunter22@git.example.org/x", ["ann", "hunter22"]),
        ("annika rebooted it", ["annika"]),
        ("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz", ["hf_abc", "qrstuvwxyz"]),
        ("hf_abcdefghijklmnopqrstuvwxyz", ["abcdefgh"]),
        ("ghp_0123456789abcdefghij0123456789abcdef", ["0123456789abcdef"]),
        ("sk-proj-abcdefghijklmnop1234", ["abcdefghijklmnop"]),
        ("key AKIAIOSFODNN7EXAMPLE", ["IOSFODNN7"]),
        ("Authorization: Bearer abc.def-ghi_jkl", ["abc.def"]),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", ["hbGciOi"]),
        ('"api_key": "s3cr3t-value"', ["s3cr3t"]),
        ("password=hunter22 next", ["hunter22"]),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", ["MIIE"]),
        ("-----BEGIN PRIVATE KEY-----\nMIIE cut", ["MIIE"]),
    ],
)
def test_names_paths_and_secrets_do_not_pass(text, secrets):
    masked = MASKER.text(text)
    assert not [secret for secret in secrets if secret in masked], masked


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (PCI:0000:41:00): 94, pid=31337, name=python3, Contained: SM (0x1)",
        "GPU has fallen off the bus",
        "/usr/lib/python3/site-packages/torch/x.py line 3",
        "digest 5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328 differs",
        "commit 244540e at 2026-11-02T03:14:09Z on gpu-0007",
        "root logged in, user=root",
        "loss 3.25 at step 41, 7 tokens",
    ],
)
def test_what_names_nobody_stays_as_it_is(text):
    assert MASKER.text(text) == text


def test_the_same_name_has_the_same_pseudonym_so_counts_hold():
    masked = [MASKER.text(f"/home/{name}/x") for name in ("ann", "bob", "ann")]
    assert masked[0] == masked[2] != masked[1]
    assert USER in MASKER.text("user=ann")
    assert USER in MASKER.text("/home/ann/other")
    assert MASKER.text("/home/ann/x").startswith(f"/home/{USER}/path-")


def test_another_key_gives_unrelated_pseudonyms():
    assert Masker(bytes(32)).pseudonym("user", "ann") != USER


def test_a_short_key_is_refused():
    with pytest.raises(LedgerError, match="too short"):
        Masker(b"short")


words = st.sampled_from(
    ["/home/ann/x y", "user=ann", "annika", "ann@host", "token: abc", "hf_abcdefghijklmnopqrst", "'", '"', " ", "\n",
     "/home/", "Bearer abcdefghij", "https://a:b@c", "for user ann,", "password=x", "é", "C:\\Users\\ann\\x"]
)  # fmt: skip


@given(parts=st.lists(words | st.text(max_size=6), max_size=8))
def test_masking_twice_is_masking_once(parts):
    once = MASKER.text("".join(parts))
    assert MASKER.text(once) == once


def test_bodies_of_records_and_observations_are_masked_and_others_are_not():
    body = {"line": "for user ann", "deep": [{"password": "hunter22", "user": "ann", "n": 3}]}
    masked = MASKER.event(
        some_event(kind="observation", body=body, source={"locator": "/home/ann/a.log#3"})
    )
    assert masked.body["line"] == f"for user {USER}"
    assert masked.body["deep"][0]["n"] == 3
    assert masked.body["deep"][0]["user"] == USER
    assert masked.body["deep"][0]["password"].startswith("token-")
    assert "ann" not in masked.source.locator
    own = some_event(kind="step", body=body)
    assert MASKER.event(own) == own


def test_the_key_is_made_once_beside_the_ledger_and_only_its_user_reads_it(tmp_path: Path):
    ledger = tmp_path / "state" / "ledger.db"
    first = load_masker(ledger, environment={"USER": "carla"})
    key = tmp_path / "state" / "ledger.db.mask-key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert [file.name for file in key.parent.iterdir()] == [key.name]
    second = load_masker(ledger, environment={})
    assert first.pseudonym("user", "ann") == second.pseudonym("user", "ann")
    assert "carla" not in first.text("carla did it")
    assert second.text("carla did it") == "carla did it"


def test_a_damaged_key_is_named(tmp_path: Path):
    (tmp_path / "l.db.mask-key").write_bytes(b"cut")
    with pytest.raises(LedgerError, match="damaged"):
        load_masker(tmp_path / "l.db")


@pytest.mark.parametrize(
    "piece",
    [
        "a", "a.", "a-", "token", "token ", "eyJ-", "eyJabcdefgh.", "hf-", "sk-", "uid=1(", "user=", "user=a ",
        "Bearer ", " ", "://a", "://a:", "a://", "a@", "@", "%", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----",
        "-----END ", "PRIVATE KEY", "/home/", "/home/a/", "password=", "api_key", "=", "\n", "xoxb-", "C:\\Users\\",
    ],
)  # fmt: skip
def test_the_time_grows_no_faster_than_the_text(piece):
    clock = SystemClock()
    began_us = clock.monotonic_us()
    MASKER.text(piece * (200_000 // len(piece)))
    assert clock.monotonic_us() - began_us < 5_000_000, "a quadratic pattern needs minutes here"
