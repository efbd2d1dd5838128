"""What torchrun (torch.distributed.elastic) leaves behind: error files, its events as JSON, and its console.

None of them says why a rank failed; they say which rank was *seen* to fail first. That is where to look, and not more: the
agent polls, so ranks that fail within one poll come in any order, and a rank that hangs is never in the list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastgood.ledger.event import Event
from lastgood.ledger.importers.elastic_console import Console
from lastgood.ledger.importers.elastic_records import Records
from lastgood.ledger.importers.importer import Context, Head
from lastgood.ledger.importers.source import Source, json_items

_CONSOLE = re.compile(
    r"Root Cause \(first observed failure\)|torch[./]distributed[./]elastic|Watchdog caught collective operation timeout"
)
_JSON = re.compile(rb"\s*(?:\[\s*)?\{")
_LAUNCHER = re.compile(r"torch[./]distributed[./](?:run|launcher)")


class Elastic:
    """Failures of ranks as observations; what the agent then does to the others as teardown."""

    name = "elastic"
    version = "1"
    title = "torchrun / torch.distributed.elastic: error files, events (JSON lines), consoles"

    def recognises(self, head: Head) -> int:
        """JSON with the keys of one of the three records, or a line that only torchrun writes."""
        text = head.text
        if text.lstrip("\ufeff \r\n").startswith("{"):
            if '"py_callstack"' in text or '"torchelastic.' in text:
                return 95
            if '"node_state"' in text and '"master_endpoint"' in text:
                return 95
            is_named = head.name.endswith("error.json") or head.name == "error"
            if '"message"' in text and '"timestamp"' in text and len(text) < 65_536:
                return 70 if is_named else 25
            return 0
        if _CONSOLE.search(text):
            return 85
        return 50 if _LAUNCHER.search(text) else 0

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """Events in the order of the file."""
        if _JSON.match(source.head):
            records = Records(context, source)
            yield from context.rows(json_items(source), records.parse)
            return
        console = Console(context, source)
        yield from context.rows(source.lines(), console.parse)
        yield from console.rest()


IMPORTER = Elastic()
