"""An escalation reaches its owner, or the ledger says that it did not."""

import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from lastgood.recovery.messages import Escalate
from lastgood.training.supervising.notify import notify

ESCALATION = Escalate(
    reason="recurs", incident="i1", owner="storage team", culprits=(2,), last_good_step=40
)
LEDGER = Path("/data/run.ledger")


def tell(*, command=None, alertmanager=None):
    """Notify, and return what the recorder got."""
    recorded = []
    recorder = SimpleNamespace(record=lambda kind, **fields: recorded.append((kind, fields)))
    target = SimpleNamespace(command=command, alertmanager=alertmanager)
    if command is None and alertmanager is None:
        target = None
    recovery = SimpleNamespace(notify_for=lambda _: target)
    contract = SimpleNamespace(spec=SimpleNamespace(recovery=recovery))
    notify(contract, recorder, ESCALATION, ledger=LEDGER)
    return recorded


def result_of(recorded):
    ((kind, fields),) = recorded
    assert (kind, fields["links"]) == ("annotation", {"incident": "i1"})
    return fields["body"]["result"]


def test_a_command_gets_the_notice_as_json_on_standard_input(tmp_path):
    out = tmp_path / "notice.json"
    recorded = tell(command=("sh", "-c", f"cat > {out}"))
    assert result_of(recorded) == "command exited with 0"
    assert json.loads(out.read_text()) == {
        "incident": "i1",
        "reason": "recurs",
        "owner": "storage team",
        "culprits": [2],
        "last_good_step": 40,
        "next": f"lastgood report {LEDGER}",
    }


def test_a_command_that_fails_is_recorded_with_its_code():
    assert result_of(tell(command=("sh", "-c", "exit 3"))) == "command exited with 3"


def test_a_command_that_does_not_exist_is_recorded_as_not_delivered():
    result = result_of(tell(command=("/nonexistent/pager",)))
    assert result.startswith("not delivered: FileNotFoundError")


def test_a_command_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr("lastgood.training.supervising.notify.NOTIFY_S_MAX", 0.1)
    assert result_of(tell(command=("sleep", "20"))).startswith("not delivered: TimeoutExpired")


@contextmanager
def alertmanager(status=200):
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_alertmanager_gets_one_alert_in_its_own_form():
    with alertmanager() as (url, got):
        assert result_of(tell(alertmanager=url)) == "alertmanager answered 200"
    ((path, content_type, (alert,)),) = got
    assert (path, content_type) == ("/api/v2/alerts", "application/json")
    assert alert["labels"] == {
        "alertname": "LastgoodEscalation",
        "incident": "i1",
        "owner": "storage team",
    }
    assert alert["annotations"] == {
        "summary": "recurs",
        "culprits": "2",
        "last_good_step": "40",
        "next": f"lastgood report {LEDGER}",
    }


def test_an_answer_that_is_an_error_is_recorded():
    with alertmanager(500) as (url, _):
        assert "500" in result_of(tell(alertmanager=url))


def test_an_address_where_nobody_listens_is_recorded():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert result_of(tell(alertmanager=f"http://127.0.0.1:{port}")).startswith("not delivered")


def test_an_answer_that_is_not_http_is_recorded_and_ends_nothing():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            end, _ = server.accept()
            end.recv(65536)
            end.sendall(b"nonsense\r\n\r\n")
            end.close()

        thread = threading.Thread(target=answer)
        thread.start()
        result = result_of(tell(alertmanager=f"http://127.0.0.1:{server.getsockname()[1]}"))
        thread.join()
    assert result.startswith("not delivered")


@pytest.mark.parametrize(
    "contract",
    [
        None,
        SimpleNamespace(spec=SimpleNamespace(recovery=SimpleNamespace(notify_for=lambda _: None))),
    ],
)
def test_without_a_notify_in_the_contract_nobody_is_told(contract):
    recorder = SimpleNamespace(record=lambda *_, **__: pytest.fail("nothing to record"))
    notify(contract, recorder, ESCALATION, ledger=LEDGER)


def test_a_row_that_names_its_own_way_is_told_there(tmp_path):
    """The restore row calls storage; everything else calls whoever the whole table names."""
    from dataclasses import replace

    from lastgood.contract.load import default_contract
    from lastgood.contract.recovery_table import Notify

    def into(name):
        return Notify(command=("sh", "-c", f"cat > {tmp_path / name}"))

    table = default_contract().spec.recovery
    restore = table.restore.model_copy(update={"notify": into("storage")})
    table = table.model_copy(update={"notify": into("everyone"), "restore": restore})
    contract = SimpleNamespace(spec=SimpleNamespace(recovery=table))
    recorder = SimpleNamespace(record=lambda *_, **__: None)
    notify(contract, recorder, replace(ESCALATION, transition="restore"), ledger=LEDGER)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["storage"]
    notify(contract, recorder, replace(ESCALATION, transition="verify"), ledger=LEDGER)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["everyone", "storage"]
