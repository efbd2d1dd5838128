"""Signed tree heads end to end: the command line signs, an independent implementation checks, and the other way round."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from lastgood.base.errors import BadInput
from lastgood.ledger.signing_key import new_key, read_key, read_verifier
from lastgood.ledger.store import open_store
from lastgood.ledger.tree_head import TreeHead, parse_note
from tests.unit.ledger.cases import make_ledger, some_events

# The example key pair of the signed-note documentation (golang.org/x/mod/sumdb/note, package example).
PUBLISHED_PRIVATE = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
PUBLISHED_VERIFIER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"


def opened(note: str, verifier: str) -> list[str]:
    """The text lines of a note that this key signed; written from the specification, with nothing of ours.

    Raises InvalidSignature when no line of the key holds.
    """
    name, id_hex, blob = verifier.split("+", 2)
    public = base64.b64decode(blob)[1:]
    assert hashlib.sha256(f"{name}\n".encode() + b"\x01" + public).digest()[:4].hex() == id_hex
    text, _, tail = note.rpartition("\n\n")
    text += "\n"
    for line in tail.splitlines():
        dash, said, value = line.split(" ")
        raw = base64.b64decode(value)
        if (dash, said, raw[:4].hex()) == ("\u2014", name, id_hex):
            Ed25519PublicKey.from_public_bytes(public).verify(raw[4:], text.encode())
            return text.splitlines()
    raise InvalidSignature


def signed_elsewhere(text: str, *, name: str, private: Ed25519PrivateKey) -> tuple[str, str]:
    """A note and its verifier line, made from the specification alone."""
    public = b"\x01" + private.public_key().public_bytes_raw()
    key_id = hashlib.sha256(f"{name}\n".encode() + public).digest()[:4]
    value = base64.b64encode(key_id + private.sign(text.encode())).decode()
    verifier = f"{name}+{key_id.hex()}+{base64.b64encode(public).decode()}"
    return f"{text}\n\u2014 {name} {value}\n", verifier


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return make_ledger(tmp_path / "ledger.db", 9)


@pytest.fixture
def made(cli, ledger, tmp_path):
    """A key, its verifier line, and the signed head of the ledger."""
    key, head = tmp_path / "signer.key", tmp_path / "head.txt"
    line = cli("key", "new", "--name", "watch.example", "-o", key).stdout.strip()
    result = cli("verify", ledger, "--save-head", head, "--sign-key", key)
    assert result.exit_code == 0
    assert result.stderr == f"tree head written to {head}, signed by watch.example\n"
    return key, line, head


def test_an_independent_implementation_accepts_our_signature(made):
    _, line, head = made
    origin, size, root = opened(head.read_text(), line)
    stated = parse_note(head.read_text())
    assert (origin, size, base64.b64decode(root)) == (stated.origin, "9", stated.root)


def test_an_independent_implementation_refuses_our_head_once_it_is_altered(made):
    _, line, head = made
    with pytest.raises(InvalidSignature):
        opened(head.read_text().replace("\n9\n", "\n8\n"), line)


def test_we_accept_a_head_that_an_independent_implementation_signed(cli, ledger, tmp_path):
    with open_store(ledger) as store:
        body = store.head().to_note()
    note, line = signed_elsewhere(body, name="elsewhere", private=Ed25519PrivateKey.generate())
    (tmp_path / "head.txt").write_text(note)
    result = cli("verify", ledger, "--head", tmp_path / "head.txt", "--verifier", line)
    assert result.exit_code == 0
    assert f"signed by     elsewhere (key {line.split('+')[1]})\n" in result.stdout


def test_the_published_key_pair_is_read_and_written_in_its_own_form(cli, tmp_path):
    file = tmp_path / "neumann.key"
    file.write_text(PUBLISHED_PRIVATE + "\n")
    file.chmod(0o600)
    key = read_key(file)
    assert key.to_line() == PUBLISHED_PRIVATE
    assert key.verifier.to_line() == PUBLISHED_VERIFIER
    assert read_verifier(PUBLISHED_VERIFIER) == key.verifier
    assert cli("key", "show", file).stdout == PUBLISHED_VERIFIER + "\n"
    assert cli("key", "show", file, "--json").json["id"] == "c74f20a3"


def test_a_key_is_for_its_owner_only_and_shown_nowhere(cli, made):
    key, line, _ = made
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    seed = key.read_text().strip().split("+", 4)[4]
    shown = cli("key", "show", key)
    assert shown.stdout == line + "\n"
    assert seed not in shown.stdout + shown.stderr + repr(read_key(key))


def test_two_new_keys_differ():
    assert new_key("a").seed != new_key("a").seed


def test_a_key_is_never_written_over(cli, made):
    key, _, _ = made
    before = key.read_bytes()
    result = cli("key", "new", "--name", "other", "-o", key)
    assert (result.exit_code, key.read_bytes()) == (2, before)
    assert "never overwritten" in result.stderr


def test_a_key_that_others_may_read_is_refused_with_the_command_that_helps(cli, ledger, made):
    key, _, head = made
    key.chmod(0o644)
    result = cli("verify", ledger, "--save-head", head, "--sign-key", key)
    assert result.exit_code == 2
    assert f"chmod 600 {key}" in result.stderr


def test_a_signed_head_holds_for_the_grown_ledger_and_says_who_signed(cli, ledger, made, tmp_path):
    _, line, head = made
    with open_store(ledger) as store:
        store.append(some_events(3, first=9))
    (tmp_path / "line.txt").write_text(line + "\n")
    for verifier in (line, tmp_path / "line.txt"):
        result = cli("verify", ledger, "--head", head, "--verifier", verifier)
        assert result.exit_code == 0
        assert "contains the outside head of size 9" in result.stdout
        assert f"signed by     watch.example (key {line.split('+')[1]})\n" in result.stdout
    told = cli("verify", ledger, "--head", head, "--verifier", line, "--json").json
    assert told["signed_by"] == [{"name": "watch.example", "id": line.split("+")[1]}]


def test_signatures_that_nobody_asked_for_are_said_to_be_unchecked(cli, ledger, made):
    _, _, head = made
    result = cli("verify", ledger, "--head", head)
    assert result.exit_code == 0
    assert "signed by     not checked: name the key with --verifier" in result.stdout
    assert cli("verify", ledger, "--head", head, "--json").json["signed_by"] == []


def altered_size(note):
    return note.replace("\n9\n", "\n8\n")


def altered_origin(note):
    return "x" + note


def added_line(note):
    return note.replace("\n\n", "\nanother line\n\n")


def another_root(note):
    lines = note.split("\n")
    lines[2] = base64.b64encode(bytes(32)).decode()
    return "\n".join(lines)


@pytest.mark.parametrize("change", [altered_size, altered_origin, added_line, another_root])
def test_an_altered_note_does_not_hold_and_the_ledger_is_not_read(cli, ledger, made, change):
    _, line, head = made
    head.write_text(change(head.read_text()))
    result = cli("verify", ledger, "--head", head, "--verifier", line)
    assert result.exit_code == 1
    assert "the note was altered" in result.stdout
    assert "the ledger was not read" in result.stdout
    told = cli("verify", ledger, "--head", head, "--verifier", line, "--json").json
    assert (told["verdict"], told["size"], told["signed_by"]) == ("failed", None, [])


def test_another_key_of_the_same_name_does_not_hold_and_both_ids_are_named(cli, ledger, made):
    _, line, head = made
    other = new_key("watch.example").verifier
    result = cli("verify", ledger, "--head", head, "--verifier", other.to_line())
    assert result.exit_code == 1
    said = f"not signed by watch.example (key {other.id_hex}), but by watch.example (key {line.split('+')[1]})"
    assert said in result.stdout


def test_an_unsigned_head_does_not_hold_when_a_signature_is_asked_for(cli, ledger, made):
    _, line, head = made
    head.write_text(head.read_text().partition("\n\n")[0] + "\n")
    assert cli("verify", ledger, "--head", head).exit_code == 0
    result = cli("verify", ledger, "--head", head, "--verifier", line)
    assert result.exit_code == 1
    assert "the outside head is not signed" in result.stdout


def test_of_several_verifiers_all_must_have_signed(cli, ledger, made):
    _, line, head = made
    second = new_key("second")
    both = ("--verifier", line, "--verifier", second.verifier.to_line())
    assert cli("verify", ledger, "--head", head, *both).exit_code == 1
    head.write_text(second.sign(parse_note(head.read_text())).to_note())
    result = cli("verify", ledger, "--head", head, *both)
    assert result.exit_code == 0
    assert result.stdout.count("signed by     ") == 2


def test_a_signed_head_finds_a_cut_tail(cli, ledger, made, tmp_path):
    _, line, head = made
    with open_store(ledger) as store:
        origin = store.origin
    shorter = TreeHead(origin=origin, size=12, root=bytes(32))
    key = read_key(made[0])
    head.write_text(key.sign(shorter).to_note())
    result = cli("verify", ledger, "--head", head, "--verifier", line)
    assert result.exit_code == 1
    assert "first bad seq 9\n" in result.stdout
    assert "signed by" not in result.stdout


def test_a_ledger_that_does_not_hold_gets_no_signed_head(cli, ledger, made, tmp_path):
    import apsw

    connection = apsw.Connection(str(ledger))
    connection.execute("UPDATE event SET body = x'00' WHERE seq = 4")
    connection.close()
    new = tmp_path / "new.txt"
    assert cli("verify", ledger, "--save-head", new, "--sign-key", made[0]).exit_code == 1
    assert not new.exists()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--sign-key", "k"], "there is no head to sign"),
        (["--verifier", PUBLISHED_VERIFIER], "there is no head whose signature to check"),
    ],
)
def test_an_option_without_its_partner_is_bad_input(cli, ledger, options, part):
    result = cli("verify", ledger, *options)
    assert result.exit_code == 2
    assert part in result.stderr


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("nowhere.txt", "cannot be read"),
        (PUBLISHED_VERIFIER.replace("c74f20a3", "c74f20a4"), "the id that belongs"),
        (PUBLISHED_VERIFIER.replace("PeterNeumann", "Peter"), "the id that belongs"),
        ("name+00000000+AAAA", "not a verifier line"),
        ("", "cannot be read"),
        ("a\0b", "cannot be read"),
    ],
)
def test_a_verifier_that_is_none_is_bad_input(cli, ledger, made, text, part):
    result = cli("verify", ledger, "--head", made[2], "--verifier", text)
    assert result.exit_code == 2
    assert part in result.stderr


def test_a_signing_key_given_as_verifier_is_refused_and_not_printed(cli, ledger, made):
    key, _, head = made
    result = cli("verify", ledger, "--head", head, "--verifier", key)
    assert result.exit_code == 2
    assert f"lastgood key show {key}" in result.stderr
    # PRIVATE+KEY+name+id+secret; the secret is base64 and may hold a plus sign itself.
    secret = key.read_text().strip().split("+", 4)[4]
    assert len(secret) > 40
    assert secret not in result.stderr


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"no head", b"a\n08\nAAAA\n"])
def test_a_head_that_cannot_be_read_is_bad_input(cli, ledger, made, content):
    _, line, head = made
    head.write_bytes(content)
    assert cli("verify", ledger, "--head", head, "--verifier", line).exit_code == 2


@pytest.mark.parametrize(
    "content", ["", "hello", PUBLISHED_VERIFIER, PUBLISHED_PRIVATE.replace("c74", "c75")]
)
def test_a_signing_key_that_is_none_is_bad_input(cli, ledger, tmp_path, content):
    file = tmp_path / "k"
    file.write_text(content)
    file.chmod(0o600)
    result = cli("verify", ledger, "--save-head", tmp_path / "h", "--sign-key", file)
    assert result.exit_code == 2
    assert "not a signing key" in result.stderr
    assert not (tmp_path / "h").exists()


@pytest.mark.parametrize("name", ["", "two words", "a+b", "a\nb", "x" * 129])
def test_a_name_that_cannot_stand_in_a_signature_is_refused(name):
    with pytest.raises(BadInput, match="key name"):
        new_key(name)


def test_a_size_written_otherwise_is_no_head():
    """Only one spelling may pass, or an altered note would carry the signature of another text."""
    head = TreeHead(origin="o", size=8, root=bytes(range(32))).to_note()
    with pytest.raises(BadInput, match="leading zeros"):
        parse_note(head.replace("\n8\n", "\n08\n"))
    spelled_otherwise = head.replace(
        "8=\n", "9=\n"
    )  # the last two bits of the digit count for nothing
    assert spelled_otherwise != head
    with pytest.raises(BadInput, match="plain base64"):
        parse_note(spelled_otherwise)


def test_json_of_a_new_key_names_it(cli, tmp_path):
    told = json.loads(cli("key", "new", "--name", "n", "-o", tmp_path / "k", "--json").stdout)
    assert told["verifier"] == read_key(tmp_path / "k").verifier.to_line()
