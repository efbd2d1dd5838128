"""The page of metrics: what is on it, and that no reader of it can hold up or break a run."""

import http.client
import socket
import struct
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lastgood.base.clock import ManualClock, SystemClock
from lastgood.base.errors import BadInput
from lastgood.ledger.event import new_event
from lastgood.recovery.policy import LoopPhase
from lastgood.training.metrics import page as module
from lastgood.training.metrics import server as server_module
from lastgood.training.metrics.declared import METRICS
from lastgood.training.metrics.page import PAGE_AGE_US_MAX, PHASES, RunMetrics
from lastgood.training.metrics.server import Address, MetricsServer, Page, parse_address

LOCAL = Address("127.0.0.1", 0)


def supervisor(*, phase=LoopPhase.RUNNING, spares=("w2",), step=3):
    return SimpleNamespace(
        options=SimpleNamespace(ranks=2, spares=1),
        state=SimpleNamespace(phase=phase, generation=4, world=2),
        spares=list(spares),
        page=SimpleNamespace(assessed_step=step),
    )


@pytest.fixture
def scene():
    clock = ManualClock(1_000_000_000)
    metrics = RunMetrics(LOCAL, clock=clock)
    yield metrics, clock
    metrics.close()


def lived(metrics, clock):
    """A run of ten seconds with one recovered incident and every kind of sample."""

    def hear(kind, **fields):
        metrics.hear(new_event(kind, clock=clock, run="r1", attempt=1, **fields))

    hear("run.start", body={"mode": "run"})
    hear("attempt.start", versions={"torch": "2.13"})
    metrics.steps_begin(1)
    clock.sleep_us(4_000_000)
    for step, took_us in ((1, 1_000_000), (2, 1_000_000), (3, 2_000_000)):
        metrics.step_done(step, took_us=took_us)
    hear("checkpoint.commit", body={"step": 2, "path": "p", "bytes": 1})
    hear("incident.open", class_="fail_stop", links={"incident": "i1"})
    hear("incident.close", class_="fail_stop", links={"incident": "i1"}, detect_us=30_000, recover_us=700_000, body={"outcome": "recovered"})  # fmt: skip
    metrics.take_turn(supervisor())
    clock.sleep_us(6_000_000)


def samples(metrics):
    text = metrics.page().body.decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def ask(address, path="/metrics", *, limit_s=10):
    connection = http.client.HTTPConnection(*address, timeout=limit_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read()
    finally:
        connection.close()


def wait_until(condition, *, limit_s=10):
    clock = SystemClock()
    deadline_us = clock.monotonic_us() + int(limit_s * 1e6)
    while not condition():
        assert clock.monotonic_us() < deadline_us, "it did not happen in time"
        clock.sleep_us(20_000)


# --- what is on the page ----------------------------------------------------------------------------


def test_every_declared_metric_is_on_the_page_of_a_run_with_its_kind_and_labels(scene):
    metrics, clock = scene
    lived(metrics, clock)
    families = list(text_string_to_metric_families(metrics.page().body.decode()))
    on_page = {}
    for family in families:
        assert family.samples, family.name
        labels = {frozenset(s.labels) - {"le"} for s in family.samples}
        name = family.name + ("_total" if family.type == "counter" else "")
        on_page[name] = (family.type, family.documentation, *labels)
    assert on_page == {m.name: (m.kind, m.text, frozenset(m.labels)) for m in METRICS}


def test_the_page_says_what_the_run_did(scene):
    metrics, clock = scene
    lived(metrics, clock)
    found = samples(metrics)
    key = (("class", "fail_stop"), ("injected", "not_declared"), ("outcome", "recovered"))
    assert found["lastgood_ettr_ratio", ()] == pytest.approx(4 / 10)
    assert found["lastgood_run_seconds", ()] == 10
    assert found["lastgood_accepted_steps", ()] == 3
    assert found["lastgood_snapshot_age_seconds", ()] == 6
    assert found["lastgood_supervisor_turn_age_seconds", ()] == 6
    assert found["lastgood_incidents_total", key] == 1
    assert found["lastgood_incidents_open", ()] == 0
    assert found["lastgood_detection_seconds_sum", (("class", "fail_stop"),)] == 0.03
    assert found["lastgood_recovery_seconds_sum", (("class", "fail_stop"),)] == 0.7
    assert found["lastgood_last_good_step", ()] == 3
    assert found["lastgood_spares_parked", ()] == 1
    assert found["lastgood_generation", ()] == 4
    assert found["lastgood_checkpoint_last_step", ()] == 2
    assert found["lastgood_run_info", (("mode", "run"), ("run", "r1"))] == 1


def test_buckets_count_everything_up_to_their_bound(scene):
    metrics, clock = scene
    lived(metrics, clock)
    found = samples(metrics)
    assert found["lastgood_step_seconds_bucket", (("le", "0.5"),)] == 0
    assert found["lastgood_step_seconds_bucket", (("le", "1.0"),)] == 2
    assert found["lastgood_step_seconds_bucket", (("le", "2.5"),)] == 3
    assert found["lastgood_step_seconds_bucket", (("le", "+Inf"),)] == 3
    assert found["lastgood_step_seconds_count", ()] == 3


@pytest.mark.parametrize("phase", LoopPhase)
def test_one_phase_is_1_and_every_other_is_0(scene, phase):
    metrics, _ = scene
    metrics.take_turn(supervisor(phase=phase))
    found = {n: samples(metrics)["lastgood_loop_phase", (("phase", n),)] for n in PHASES}
    assert found == {name: int(name == phase.value) for name in PHASES}


def test_before_the_first_turn_what_is_not_known_is_left_out(scene):
    metrics, _ = scene
    found = {name for name, _ in samples(metrics)}
    assert {"lastgood_ettr_ratio", "lastgood_last_good_step", "lastgood_snapshot_age_seconds"}.isdisjoint(found)  # fmt: skip
    assert samples(metrics)["lastgood_loop_phase", (("phase", "starting"),)] == 1


def test_the_backlog_is_asked_for_at_the_scrape_so_that_a_stuck_run_shows_it(scene):
    metrics, clock = scene
    waiting = [7]
    metrics.watch_ledger(lambda: waiting[0])
    assert samples(metrics)["lastgood_ledger_backlog", ()] == 7
    waiting[0] = 9
    clock.sleep_us(PAGE_AGE_US_MAX)
    assert samples(metrics)["lastgood_ledger_backlog", ()] == 9


def test_many_scrapes_at_once_cost_one_page(scene):
    metrics, clock = scene
    first = metrics.page()
    metrics.take_turn(supervisor())
    clock.sleep_us(PAGE_AGE_US_MAX - 1)
    assert metrics.page() is first
    clock.sleep_us(1)
    assert metrics.page() is not first


# --- nothing in here reaches the run ----------------------------------------------------------------


def test_what_goes_wrong_in_the_metrics_is_counted_and_does_not_reach_the_run(scene):
    metrics, clock = scene
    metrics.hear(new_event("checkpoint.commit", clock=clock, run="r1", body={}))  # no step in it
    metrics.take_turn(None)
    metrics.step_done(1, took_us="long")
    assert samples(metrics)["lastgood_metrics_errors_total", ()] == 3


def test_a_page_that_cannot_be_made_is_an_answer_500_and_the_next_one_is_served():
    pages = iter([None])

    def make():
        if next(pages, 0) is None:
            raise RuntimeError("no page")
        return Page("text/plain", b"fine")

    server = MetricsServer(LOCAL, make)
    try:
        address = ("127.0.0.1", server.port)
        assert ask(address)[0] == 500
        assert ask(address)[::2] == (200, b"fine")
    finally:
        server.close()


def test_readers_that_stall_delay_no_turn_and_cost_no_more_than_their_bound(scene):
    """Many connections that send half a request, while turns are taken: each turn stays far below 10 ms."""
    metrics, _ = scene
    server = metrics._server
    clock, thread_count = SystemClock(), threading.active_count()
    with ExitStack() as stack:
        for _ in range(3 * server_module.CONNECTION_COUNT_MAX):
            end = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 5))
            end.sendall(b"GET /metrics HT")
        wait_until(lambda: server.connection_count == server_module.CONNECTION_COUNT_MAX)
        assert threading.active_count() <= thread_count + server_module.CONNECTION_COUNT_MAX
        turns_us = []
        for step in range(1, 201):
            began_us = clock.monotonic_us()
            metrics.step_done(step, took_us=50_000)
            metrics.take_turn(supervisor(step=step))
            turns_us.append(clock.monotonic_us() - began_us)
        assert sorted(turns_us)[150] < 10_000  # one in four may be the scheduler's
        assert server.connection_count <= server_module.CONNECTION_COUNT_MAX


def test_a_turn_does_not_wait_for_a_page_that_is_being_made(scene, monkeypatch):
    """The page is held up half-way, as by a scraper's slow thread; turns go on meanwhile."""
    metrics, _ = scene
    is_making, may_go_on = threading.Event(), threading.Event()

    def slow(_reading, _now_us):
        is_making.set()
        may_go_on.wait(10)
        return {}

    monkeypatch.setattr(module, "_state_samples", slow)
    reader = threading.Thread(target=metrics.page)
    reader.start()
    try:
        assert is_making.wait(5)
        turns = threading.Thread(
            target=lambda: [
                (metrics.step_done(n, took_us=1), metrics.take_turn(supervisor(step=n)))
                for n in range(1, 101)
            ]
        )
        turns.start()
        turns.join(5)
        assert not turns.is_alive()
        assert metrics._reading.turn.last_good_step == 100
    finally:
        may_go_on.set()
        reader.join(5)


def test_a_connection_that_drips_is_cut_when_its_time_is_up(monkeypatch):
    monkeypatch.setattr(server_module, "CONNECTION_US_MAX", 300_000)
    server = MetricsServer(LOCAL, lambda: Page("text/plain", b"fine"))
    try:
        with socket.create_connection(("127.0.0.1", server.port), 5) as end:
            end.settimeout(0.05)
            wait_until(lambda: server.connection_count == 1)
            wait_until(lambda: _drip(end) or server.connection_count == 0)
        assert ask(("127.0.0.1", server.port))[0] == 200
    finally:
        server.close()


def _drip(end):
    try:
        end.sendall(b"G")
    except OSError:
        return True
    return False


@pytest.mark.parametrize("sent", [b"\0\xff\n\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n", b"G" * 70_000, b""])  # fmt: skip
def test_a_broken_request_harms_nobody(scene, sent, capfd):
    metrics, _ = scene
    with socket.create_connection(("127.0.0.1", metrics._server.port), 5) as end:
        end.sendall(sent)
        end.shutdown(socket.SHUT_WR)
        try:
            while end.recv(65_536):
                pass
        except ConnectionResetError:
            pass
    assert ask(("127.0.0.1", metrics._server.port))[0] == 200
    assert capfd.readouterr().err == ""


def test_a_reader_that_goes_away_before_its_answer_is_not_worth_a_line(capfd):
    is_gone, was_asked = threading.Event(), threading.Event()

    def make():
        was_asked.set()
        is_gone.wait(5)
        return Page("text/plain", b"x" * 4_000_000)

    server = MetricsServer(LOCAL, make)
    try:
        with socket.create_connection(("127.0.0.1", server.port), 5) as end:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert was_asked.wait(5)
        is_gone.set()
        wait_until(lambda: server.connection_count == 0)
    finally:
        server.close()
    assert capfd.readouterr().err == ""


def test_the_page_is_served_as_the_text_that_prometheus_reads(scene):
    metrics, _ = scene
    status, content_type, body = ask(("127.0.0.1", metrics._server.port))
    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert body == metrics.page().body
    assert metrics.url == f"http://127.0.0.1:{metrics._server.port}/metrics"


def test_any_other_path_says_where_the_metrics_are(scene):
    metrics, _ = scene
    assert ask(("127.0.0.1", metrics._server.port), "/")[::2] == (404, b"metrics are at /metrics\n")


def test_a_closed_server_gives_its_port_back_and_leaves_no_thread():
    before = set(threading.enumerate())
    metrics = RunMetrics(LOCAL)
    port = metrics._server.port
    metrics.close()
    wait_until(lambda: set(threading.enumerate()) <= before)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 2)


# --- addresses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9464", Address("127.0.0.1", 9464)),
        (":9464", Address("0.0.0.0", 9464)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:80", Address("::1", 80)),
    ],
)
def test_an_address_is_a_host_and_a_port(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "9464", "host", "host:", ":65536", "::1:80", "http://h:1", "h:1/x", "h:-1", "a b:1"])  # fmt: skip
def test_anything_else_is_refused_with_what_to_write(text):
    with pytest.raises(BadInput, match=r"write 127\.0\.0\.1:9464"):
        parse_address(text)


def test_a_port_that_is_taken_is_refused_with_a_way_out():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=r"127\.0\.0\.1:0 to have a free port"):
            RunMetrics(Address("127.0.0.1", port))


def test_an_address_of_another_host_is_refused():
    with pytest.raises(BadInput, match="an address of this host"):
        RunMetrics(Address("192.0.2.1", 0))  # for documentation only, so nobody's
