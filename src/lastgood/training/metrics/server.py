"""A small web server for one page, which nobody who reads it slowly can turn against the run.

It has a thread of its own and at most `CONNECTION_COUNT_MAX` more; a connection that is not done after
`CONNECTION_US_MAX` is cut, and one too many is closed at once. So its descriptors and threads are bounded, and the
supervisor's turn never waits for it: all that the two share is the reading of the last turn.
"""

from __future__ import annotations

import os
import re
import socket
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from lastgood.base.clock import SystemClock
from lastgood.base.errors import BadInput

CONNECTION_COUNT_MAX = 8
CONNECTION_US_MAX = 5_000_000
"""From the accepted connection to the last byte. Scrapers give up after 10 s by default."""
READ_S_MAX = 2.0
_POLL_S = 0.1
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - only when the address names no host
_PLACES = {"/metrics", "/metrics/"}


class Address(NamedTuple):
    """Where to listen; port 0 has the system choose one."""

    host: str
    port: int


class Page(NamedTuple):
    """What is served."""

    content_type: str
    body: bytes


PORT_MAX = 65_535


def parse_address(text: str) -> Address:
    """Return the address that a person wrote: host:port, [v6]:port, or :port for every interface.

    Raises:
        BadInput: It is neither.
    """
    found = re.fullmatch(
        r"(\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:\[\]/\s]*)):(?P<port>\d{1,9})", text
    )
    if found is not None and int(found["port"]) > PORT_MAX:
        raise BadInput(
            "no such port", where="--metrics", found=found["port"], needs=f"a port of 0 to {PORT_MAX}",
            next="write 127.0.0.1:9464",
        )  # fmt: skip
    if found is None:
        raise BadInput(
            "no address to serve metrics on", where="--metrics", found=repr(text)[:80],
            needs="HOST:PORT, or :PORT for every interface", next="write 127.0.0.1:9464",
        )  # fmt: skip
    return Address(found["v6"] or found["host"] or _EVERYWHERE, int(found["port"]))


class MetricsServer:
    """Serves what `make_page` returns under /metrics until it is closed."""

    def __init__(self, address: Address, make_page: Callable[[], Page]) -> None:
        """Listens from here on.

        Raises:
            BadInput: The address is not of this host, or somebody else listens there.
        """
        try:
            family, *_ = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
            self._server = _Server(address, family, make_page)
        except OSError as error:
            raise BadInput(
                "metrics cannot be served there", where=f"--metrics {address.host}:{address.port}",
                found=error.strerror or str(error), needs="an address of this host that is free",
                next="write 127.0.0.1:0 to have a free port chosen",
            ) from error  # fmt: skip
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True
        )
        self._thread.start()
        host, self.port = self._server.server_address[:2]
        name = os.uname().nodename if host == _EVERYWHERE else str(host)
        self.url = f"http://{f'[{name}]' if ':' in name else name}:{self.port}/metrics"

    @property
    def connection_count(self) -> int:
        """Connections that are open now."""
        return len(self._server.deadlines_us)

    def close(self) -> None:
        """Stop listening; whoever still reads is cut off."""
        self._server.shutdown()
        self._server.server_close()
        self._server.cut(until_us=None)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(
        self, address: Address, family: socket.AddressFamily, make_page: Callable[[], Page]
    ) -> None:
        self.address_family = family
        self.make_page = make_page
        self.clock = SystemClock()
        self.deadlines_us: dict[socket.socket, int] = {}
        super().__init__(tuple(address), _Handler)

    def server_bind(self) -> None:
        """Without the look-up of the host's full name, which may take as long as a broken name service likes."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread, if there is room for one more."""
        if len(self.deadlines_us) >= CONNECTION_COUNT_MAX:
            self.shutdown_request(request)
            return
        self.deadlines_us[request] = self.clock.monotonic_us() + CONNECTION_US_MAX
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection and make room."""
        self.deadlines_us.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Between two connections: cut those that take too long."""
        self.cut(until_us=self.clock.monotonic_us())

    def cut(self, *, until_us: int | None) -> None:
        """Break the connections whose time was up by then, or all; their threads end by themselves."""
        for request, deadline_us in list(self.deadlines_us.items()):
            if until_us is None or deadline_us <= until_us:
                try:
                    request.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # it ended meanwhile

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away is not worth a line among the run's."""


class _Handler(BaseHTTPRequestHandler):
    timeout = READ_S_MAX
    server_version = "lastgood"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one request."""
        assert isinstance(self.server, _Server)
        if self.path.partition("?")[0] not in _PLACES:
            self._answer(404, Page("text/plain; charset=utf-8", b"metrics are at /metrics\n"))
            return
        try:
            page = self.server.make_page()
        except Exception:  # noqa: BLE001 - whatever it is, the run goes on and the scraper is told
            self._answer(500, Page("text/plain; charset=utf-8", b"no metrics could be made\n"))
            return
        self._answer(200, page)

    def _answer(self, status: int, page: Page) -> None:
        self.send_response(status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        self.wfile.write(page.body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: standard error belongs to the run."""
