"""A live job is scraped while a rank of it is killed, and while readers that never finish hold its connections."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import open_store
from lastgood.training.metrics.server import CONNECTION_COUNT_MAX
from tests.fault.training_drill import JOB, assert_recovered_in_order, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

RANKS, REQUEUE = 2, 75
KILLED_RANK = 1
DETECT_US_MAX = 20_000_000
"""A death is seen at once; a supervisor that waited for every stalled reader in turn would be later than this."""
RECOVERED = {"class": "fail_stop", "outcome": "recovered", "injected": "not_declared"}


class Job:
    """`lastgood run --metrics` with a port that the system chose."""

    def __init__(self, folder: Path) -> None:
        self.ledger = folder / "ledger.db"
        self._said = folder / "said.txt"
        command = [
            sys.executable, "-m", "lastgood.cli.main", "run", "--nproc-per-node", RANKS, "--spares", "1",
            "--metrics", "127.0.0.1:0", "--run-id", "scraped", "--ledger", self.ledger,
            JOB, "--steps", "100000", "--pace-ms", "40", "--out", folder,
        ]  # fmt: skip
        with self._said.open("w") as said:
            self.process = subprocess.Popen([str(part) for part in command], stderr=said)
        wait_until(lambda: "metrics at http" in self.said or self.process.poll() is not None)
        self.url = re.findall(r"metrics at (\S+)", self.said)[0]

    @property
    def said(self) -> str:
        return self._said.read_text()

    def pid_of(self, rank: int) -> int:
        return int(re.findall(rf"rank {rank} pid (\d+)", self.said)[0])

    def scrape(self) -> dict:
        with urllib.request.urlopen(self.url, timeout=10) as answer:
            text = answer.read().decode()
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def until(self, condition) -> dict:
        """Scrape until it is so, and return that page."""
        kept: list[dict] = []

        def look() -> bool:
            assert self.process.poll() is None, self.said
            try:
                kept[:] = [self.scrape()]
            except OSError:  # the last connection is not closed yet, and the others are taken
                return False
            return condition(kept[0])

        wait_until(look)
        return kept[0]


def incidents(page: dict) -> float:
    return page["lastgood_incidents_total", *sorted(RECOVERED.items())]


def value(page: dict, name: str) -> float | None:
    return page.get((f"lastgood_{name}",))


def stall(job: Job, stack: ExitStack) -> None:
    """Take every connection but two, with requests that never end."""
    place = urlsplit(job.url)
    for _ in range(CONNECTION_COUNT_MAX - 2):
        end = stack.enter_context(socket.create_connection((place.hostname, place.port), 5))
        end.sendall(b"GET /metrics HTTP/1.1\r\nX:")


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """Pages before the kill, while the spare is missing, and after; then what the ledger says."""
    job = Job(tmp_path_factory.mktemp("scraped"))
    pages = {}
    try:
        pages["launch"] = job.until(lambda p: value(p, "ettr_ratio") is not None)
        pages["before"] = job.until(
            lambda p: (value(p, "accepted_steps") or 0) >= 20 and value(p, "spares_parked") == 1
        )
        with ExitStack() as stack:
            stall(job, stack)
            os.kill(job.pid_of(KILLED_RANK), signal.SIGKILL)
            pages["without a spare"] = job.until(lambda p: value(p, "spares_parked") == 0)
        pages["closed"] = job.until(lambda p: incidents(p) > 0)
        steps = value(pages["closed"], "accepted_steps") or 0
        pages["after"] = job.until(
            lambda p: (
                value(p, "spares_parked") == 1 and (value(p, "accepted_steps") or 0) > steps + 10
            )
        )
        job.process.send_signal(signal.SIGTERM)
        code = job.process.wait(timeout=60)
    finally:
        job.process.kill()
        job.process.wait()
    with open_store(job.ledger, create=False) as store:
        events = list(store.events())
    return {"job": job, "code": code, "pages": pages, "events": events}


def test_metrics_are_served_while_the_workers_still_start(story):
    page = story["pages"]["launch"]
    assert page["lastgood_loop_phase", ("phase", "starting")] == 1
    assert value(page, "ettr_ratio") == 0
    assert incidents(page) == 0


def test_a_killed_rank_shows_as_one_more_recovered_incident(story):
    before, after = story["pages"]["before"], story["pages"]["after"]
    assert (incidents(before), incidents(after)) == (0, 1)
    assert value(after, "incidents_open") == 0
    assert after["lastgood_detection_seconds_count", ("class", "fail_stop")] == 1
    assert after["lastgood_recovery_seconds_sum", ("class", "fail_stop")] > 0
    assert value(after, "generation") == (value(before, "generation") or 0) + 1


def test_the_spare_is_gone_while_it_serves_and_another_one_parks(story):
    pages = story["pages"]
    parked = [value(pages[at], "spares_parked") for at in ("before", "without a spare", "after")]
    assert parked == [1, 0, 1]


def test_ettr_is_below_one_and_is_what_the_ledger_says_of_the_same_steps(story):
    page = story["pages"]["after"]
    count, wall_s = value(page, "accepted_steps"), value(page, "run_seconds")
    ended: dict[int, tuple[int, int]] = {}
    for event in story["events"]:
        if event.kind == "step":
            began_us = event.body["began_us"]
            for step, ended_us in enumerate(event.body["ended_us"], event.body["first"]):
                ended[step] = (began_us, ended_us)
                began_us = ended_us
    assert count is not None
    assert wall_s is not None
    productive_s = sum(ended[n][1] - ended[n][0] for n in range(1, int(count) + 1)) / 1e6
    assert value(page, "productive_seconds") == pytest.approx(productive_s, abs=1e-6)
    assert value(page, "ettr_ratio") == pytest.approx(productive_s / wall_s)
    assert 0 < productive_s / wall_s < 1


def test_readers_that_never_finish_do_not_delay_the_detection(story):
    (incident,) = [i for i in fold_incidents(story["events"]) if i.ranks == (KILLED_RANK,)]
    assert incident.detect_us is not None
    assert incident.detect_us < DETECT_US_MAX
    assert_recovered_in_order(incident)


def test_the_page_ends_with_the_run(story):
    assert story["code"] == REQUEUE
    with pytest.raises(URLError):
        story["job"].scrape()


def test_no_mistake_was_made_on_the_way(story):
    page = story["pages"]["after"]
    assert value(page, "metrics_errors_total") == 0
    assert value(page, "lost_steps_total") == 0
    assert value(page, "supervisor_turn_age_seconds") < 20
    assert value(page, "last_good_step") >= value(page, "accepted_steps") - 1
