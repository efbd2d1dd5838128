"""`lastgood run --metrics`: a bad address stops before anything is started, and without the option nothing is loaded."""

import socket
import subprocess
import sys

import pytest


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("raise SystemExit('the script was started')\n")
    return path


@pytest.mark.parametrize("address", ["9464", "http://localhost:1", ":99999"])
def test_an_address_that_is_none_is_bad_input_and_nothing_is_started(
    cli, tmp_path, script, address
):
    ledger = tmp_path / "ledger.db"
    result = cli("run", "--ledger", ledger, "--metrics", address, script)
    assert result.exit_code == 2
    assert "--metrics" in result.stderr
    assert "write 127.0.0.1:9464" in result.stderr
    assert not ledger.exists()


def test_a_port_that_is_taken_stops_the_run_before_it_begins(cli, tmp_path, script):
    ledger = tmp_path / "ledger.db"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = cli("run", "--ledger", ledger, "--metrics", address, script)
    assert result.exit_code == 2
    assert address in result.stderr
    assert not ledger.exists()


@pytest.mark.fault
def test_a_run_that_cannot_start_leaves_no_listener_behind(cli, tmp_path, script):
    """The workers end at once; the address that was printed is free again afterwards."""
    result = cli("run", "--spares", "0", "--ledger", tmp_path / "l.db", "--metrics", "127.0.0.1:0", script)  # fmt: skip
    (line,) = [line for line in result.stderr.splitlines() if "metrics at" in line]
    port = int(line.rpartition(":")[2].removesuffix("/metrics"))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 2)


def test_without_the_option_the_library_is_not_loaded():
    code = (
        "import sys, lastgood.cli.run, lastgood.cli.live, lastgood.training.supervising.session\n"
        "sys.exit('prometheus_client' in sys.modules or 'http.server' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_port_that_is_too_large_is_called_one(cli, tmp_path, script):
    result = cli("run", "--ledger", tmp_path / "l.db", "--metrics", ":99999", script)
    assert "no such port: found 99999, needs a port of 0 to 65535" in result.stderr


def test_a_name_from_a_variable_that_is_not_set_is_no_name_to_make_up(cli, tmp_path, script):
    ledger = tmp_path / "l.db"
    result = cli("run", "--ledger", ledger, "--run-id", "", script)
    assert (result.exit_code, ledger.exists()) == (2, False)
    assert "a run needs a plain name: found ''" in result.stderr
    result = cli("import", "--run", "", script, "--ledger", ledger)
    assert (result.exit_code, ledger.exists()) == (2, False)
