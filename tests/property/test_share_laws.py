"""Laws of sharing: whatever names a ledger holds and wherever they stand, none can be read in what is handed out."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from lastgood.evidence.bundle import write_bundle
from lastgood.evidence.pseudonyms import Pseudonyms
from lastgood.evidence.public_words import public_words
from lastgood.evidence.recompute import recompute_bundle
from lastgood.ledger.event import Domain, Source
from lastgood.ledger.store import open_store
from lastgood.ledger.verify import verify_ledger
from lastgood.training.report.section import build_section
from tests.unit.evidence import sample_run
from tests.unit.evidence.share_cases import surviving

BUILDERS = {"training": build_section}
KEY = bytes(range(32))
LETTERS = st.sampled_from("abcdefghijklmnopqrstuvwxyzäßøжλ")
WORD = st.text(LETTERS, min_size=6, max_size=10).filter(
    lambda word: not public_words().has_word(word) and not set(word) <= set("abcdef")
)
"""No word of hex digits alone: a hash may hold such a one by chance."""
HOST = st.one_of(
    st.builds("{}-{}".format, WORD, st.integers(0, 9999)),
    st.builds("{}.{}.example".format, WORD, WORD),
    st.builds("{} {}".format, WORD, WORD),
    st.builds("{}:{}".format, WORD, st.integers(0, 9)),
    st.sampled_from(("gpu node", "rank-step", "kernel", "restore")),
)
"""The last ones are made of public words only: a host is a host because the ledger says so."""
PATH = st.builds("/{}/{}/{}.pt".format, WORD, WORD, WORD)
ADDRESS = st.one_of(
    st.tuples(*[st.integers(10, 255)] * 4).map(lambda parts: ".".join(map(str, parts))),
    st.builds("{}@{}.org".format, WORD, WORD),
    st.builds("https://{}.net/{}?q={}".format, WORD, WORD, WORD),
    st.builds("2001:db8:{:x}:{:x}::1".format, st.integers(4096, 65535), st.integers(4096, 65535)),
)
PROSE = st.sampled_from((
    "{0} saw {1} on {2}, then {3} at {4}",
    "({0})[{1}]<{2}>'{3}'\"{4}\"",
    "{4}|{3}|{2}|{1}|{0}",
    "user={1};host={0},run={2} file:{3} {4}",
    "\n{0}\t{1}\r\n{2}\x07{3} {4}.",
))  # fmt: skip


@st.composite
def named(draw):
    return draw(HOST), draw(WORD), draw(WORD), draw(PATH), draw(ADDRESS)


def parts_of(names):
    """What would give a name away: the name, and each part of it that is long enough to be one."""
    host, user, run, path, address = names
    found = {host, user, run, path, address, *path.strip("/").removesuffix(".pt").split("/")}
    return {part for part in found if len(part) >= 5}


def told(names, prose):
    """A small run whose every field and text holds the names."""
    host, user, run, path, address = names
    text = prose.format(*names)
    events = sample_run.undisturbed(last_step=2)
    made = sample_run.Recorder(run=run, is_injected=False, now_us=events[-1].t_occurred_us)
    made.events = [msgspec.structs.replace(e, run=run, id=f"{run}/{e.seq}") for e in events]
    made.add(
        "record",
        domain=[{"kind": "host", "id": host}, {"kind": "rack", "id": f"{host}/r"}],
        body={"reason": text, "user": user, "host": host, "nested": [{"path": path, text: text, "at": [address]}]},
    )  # fmt: skip
    last = msgspec.structs.replace(
        made.events[-1],
        source=Source(importer=user, version=host, locator=f"{path}#3", raw_sha256=host),
        topology=host,
        versions={user: address},
        domain=(*made.events[-1].domain, Domain(kind="host", id=user)),
    )
    return [*made.events[:-1], last]


@settings(
    max_examples=8, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)  # shrinking bundles takes minutes
@given(named(), PROSE)
def test_no_name_survives_a_shared_bundle_and_it_recomputes(names, prose):
    public = {
        "kernel",
        "restore",
        "rank-step",
        "gpu node",
    }  # the report's own page says these words
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_store(folder / "l.db") as store:
            store.append(told(names, prose))
        made = write_bundle(
            folder / "l.db",
            folder / "b",
            contract=None,
            run=names[2],
            now_us=sample_run.START_US + 10**9,
            version="0.1.0",
            builders=BUILDERS,
            share_key=KEY,
        )
        result = recompute_bundle(folder / "b", builders=BUILDERS, version="0.1.0")
        assert result.first_difference is None
        assert surviving(parts_of(names) - public, folder / "b") == []
        assert verify_ledger(folder / "b" / "ledger.db", head=made.head).ok
        with open_store(folder / "b" / "ledger.db") as store:
            shared = list(store.events())[-1]
        assert shared.body["host"] == shared.domain[0].id  # also for a host called `kernel`
        assert names[0] not in shared.body["reason"]


@given(st.lists(named(), min_size=1, max_size=4), PROSE, st.text(max_size=30))
def test_no_name_survives_a_text_whether_it_was_learned_or_not(several, prose, noise):
    pseudonyms = Pseudonyms(KEY)
    for host, *_ in several:
        pseudonyms.learn(host, "host")
    for names in several:
        shared = pseudonyms.text(prose.format(*names) + noise).lower()
        assert [part for part in parts_of(names) if part.lower() in shared] == []


@given(named(), PROSE)
def test_equal_texts_stay_equal_and_different_ones_different(names, prose):
    """Counts hold: what was one value before is one value after, and two stay two."""
    text, pseudonyms = prose.format(*names), Pseudonyms(KEY)
    other = prose.format(names[0], names[1] + "x", *names[2:])
    assume(other != text)
    assert pseudonyms.text(text) == Pseudonyms(KEY).text(text)
    assert pseudonyms.text(text) != pseudonyms.text(other)


@given(st.text(max_size=200))
def test_any_text_is_shared_without_an_error_and_shows_no_long_foreign_word(text):
    shared = Pseudonyms(KEY).text(text)
    letters = [
        w for w in text.split() if w.isalpha() and len(w) > 3 and not set(w) <= set("abcdef")
    ]
    kept = [w for w in letters if not public_words().has_word(w) and w.lower() in shared.lower()]
    assert [
        word for word in kept if word.lower() not in {"name", "path", "address", "digest"}
    ] == []
