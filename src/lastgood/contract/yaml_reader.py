"""YAML in, plain values and the line of every key out; every surprise of YAML is a problem, not a guess.

PyYAML composes the node tree (with line marks); the scalars are ours: `true` and `false` are the only
booleans (`yes`, `no`, `on`, `off` are text), there are no dates and no sexagesimal numbers, and a number
with a leading zero is text. Anchors, aliases, tags, duplicate keys, a second document and deep nesting are
refused. Hostile bytes end in problems too: the file is bounded before it is parsed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lastgood.base.errors import Problem, Problems

FILE_BYTES_MAX = 256 * 1024
DEPTH_MAX = 32
PROBLEM_COUNT_MAX = 100
"""Problems printed for one file; the rest is counted."""

KeyPath = tuple[str | int, ...]

_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?([eE][-+]?[0-9]{1,3})?")
_TRUNCATE_CHARS = 60


@dataclass(slots=True)
class Document:
    """One document: its plain value, and the line (1-based) on which each key path stands."""

    source: str
    value: object = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _known: set[Problem] = field(default_factory=set)

    def line_of(self, path: KeyPath) -> int:
        """The line of the path, or of its nearest parent that is there."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 1

    def add(
        self, path: KeyPath, *, found: str, needs: str, write: str = "", line: int | None = None
    ) -> None:
        """Note one problem at a key path; the same one again changes nothing."""
        problem = Problem(
            where=f"{self.source}:{line or self.line_of(path)}",
            what=path_text(path) or "the document",
            found=shorten(found),
            needs=needs,
            next=f"write {write}" if write else None,
        )
        if problem not in self._known:
            self._known.add(problem)
            self.problems.append(problem)

    def replace(self, path: KeyPath, value: object) -> bool:
        """Put another value at a path that is there; False when it is not."""
        parent = self._parent_of(path)
        if parent is None:
            return False
        parent[path[-1]] = value
        return True

    def move_key(self, path: KeyPath, key: str) -> None:
        """Move the value of a key to another key with its line, or drop it when that key is empty or taken."""
        parent = self._parent_of(path)
        if parent is None:
            return
        value = parent.pop(path[-1])
        if not key or key in parent:
            return
        parent[key] = value
        length, target = len(path), (*path[:-1], key)
        moved = {
            target + old[length:]: at for old, at in self.lines.items() if old[:length] == path
        }
        self.lines |= moved

    def _parent_of(self, path: KeyPath) -> dict[str | int, object] | None:
        """The mapping that holds the last key of the path; None when there is none."""
        node = self.value
        for part in path[:-1]:
            inside = node.get(part) if isinstance(node, dict) else None
            if isinstance(node, list) and isinstance(part, int) and part < len(node):
                inside = node[part]
            node = inside
        return node if isinstance(node, dict) and path and path[-1] in node else None

    def raise_problems(self) -> None:
        """Raise all problems, in the order of their lines; nothing when there are none."""
        if not self.problems:
            return
        ordered = sorted(
            self.problems, key=lambda problem: int((problem.where or ":1").rpartition(":")[2])
        )
        shown = ordered[:PROBLEM_COUNT_MAX]
        if len(ordered) > len(shown):
            shown.append(
                Problem(
                    where=self.source,
                    what=f"{len(ordered) - len(shown)} more problems are not shown",
                )
            )
        raise Problems(shown, code="LG-C02")


def path_text(path: KeyPath) -> str:
    """A key path as a person writes it: `spec.objectives[0].target`."""
    text = ""
    for part in path:
        text += (
            f"[{part}]" if isinstance(part, int) else f".{shorten(part)}" if text else shorten(part)
        )
    return text


def shorten(text: str) -> str:
    """Text that fits on a line and holds nothing a terminal would obey."""
    safe = "".join(char if char.isprintable() else "?" for char in text[: _TRUNCATE_CHARS + 1])
    return safe[:_TRUNCATE_CHARS] + "..." if len(safe) > _TRUNCATE_CHARS else safe


def read_document(path: Path) -> Document:
    """Read one file; all that is wrong with its YAML lies in `problems` of the result."""
    document = Document(source=str(path))
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or "an unreadable file"
        document.add(
            (),
            found=reason.lower(),
            needs="a readable YAML file",
            write=f"one with: lastgood contract init -o {path}",
        )
        return document
    return parse_document(raw, source=str(path))


def parse_document(raw: bytes, *, source: str) -> Document:
    """Parse bytes as one YAML document under our rules."""
    document = Document(source=source)
    if len(raw) > FILE_BYTES_MAX:
        document.add(
            (),
            found=f"more than {FILE_BYTES_MAX} bytes",
            needs=f"a contract of at most {FILE_BYTES_MAX} bytes",
        )
        return document
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        document.add(
            (),
            found=f"byte 0x{raw[error.start]:02x} that is not UTF-8",
            needs="text in UTF-8",
            line=line,
        )
        return document
    node = _compose(text, document)
    if node is not None:
        document.value = _plain(node, (), document)
    return document


def _compose(text: str, document: Document) -> Node | None:
    loader: _Loader | None = None
    try:
        loader = _Loader(text, document)
        if loader.is_empty():
            document.add(
                (),
                found="an empty file",
                needs="a failure contract",
                write="one with: lastgood contract init -o contract.yaml",
            )
            return None
        return loader.compose_only_document()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        document.add((), found=f"character {error.character!r}", needs="printable text", line=line)
    except yaml.MarkedYAMLError as error:
        _add_syntax_problem(error, text, document)
    except _TooDeep as error:
        document.add(
            (), found=f"more than {DEPTH_MAX} levels", needs="at most that many", line=error.line
        )
    except (yaml.YAMLError, ValueError, OverflowError, IndexError, RecursionError) as error:
        # PyYAML lets a few bare errors through, such as an escape beyond Unicode.
        line = loader.line + 1 if loader is not None else 1
        document.add(
            (),
            found=f"text that YAML cannot hold ({type(error).__name__})",
            needs="valid YAML",
            line=line,
        )
    return None


def _add_syntax_problem(error: yaml.MarkedYAMLError, text: str, document: Document) -> None:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    lines = text.splitlines()
    here = lines[line - 1] if line <= len(lines) else ""
    if here[: len(here) - len(here.lstrip())].count("\t") or "'\\t'" in (error.problem or ""):
        document.add(
            (),
            found="a tab",
            needs="spaces for indentation",
            write="two spaces for each tab",
            line=line,
        )
        return
    document.add(
        (),
        found=(error.problem or "a syntax error").removeprefix("found "),
        needs=f"valid YAML ({error.context})" if error.context else "valid YAML",
        line=line,
    )


class _TooDeep(Exception):
    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class _Loader(yaml.SafeLoader):
    """PyYAML's composer that notes what we refuse instead of resolving it."""

    def __init__(self, text: str, document: Document) -> None:
        super().__init__(text)
        self._document = document
        self._depth = 0

    def is_empty(self) -> bool:
        self.get_event()
        return self.check_event(yaml.StreamEndEvent)

    def compose_only_document(self) -> Node | None:
        node = self.compose_document()
        if not self.check_event(yaml.StreamEndEvent):
            line = self.peek_event().start_mark.line + 1
            self._document.add(
                (), found="a second document", needs="one contract in one file", line=line
            )
        return node

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            self.get_event()
            self._document.add(
                (), found=f"the alias *{event.anchor}", needs="the value itself", line=line
            )
            return ScalarNode("", "")
        if event.anchor is not None:
            self._document.add(
                (), found=f"the anchor &{event.anchor}", needs="no anchor", line=line
            )
            event.anchor = None
        if getattr(event, "tag", None) is not None:
            self._document.add((), found=f"the tag {event.tag}", needs="no tag", line=line)
        if self._depth >= DEPTH_MAX:
            raise _TooDeep(line)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def _plain(node: Node, path: KeyPath, document: Document) -> object:
    document.lines.setdefault(path, _line(node))
    if isinstance(node, MappingNode):
        return _plain_mapping(node, path, document)
    if isinstance(node, SequenceNode):
        return [_plain(item, (*path, index), document) for index, item in enumerate(node.value)]
    text = str(node.value)
    if not _is_unicode(text):
        document.add(path, found="half of a surrogate pair", needs="whole characters")
        return ""
    return scalar_value(text) if isinstance(node, ScalarNode) and node.style is None else text


def _plain_mapping(node: MappingNode, path: KeyPath, document: Document) -> dict[str, object]:
    plain: dict[str, object] = {}
    for key_node, value_node in node.value:
        line = _line(key_node)
        if not isinstance(key_node, ScalarNode) or not _is_unicode(str(key_node.value)):
            document.add(path, found="a key that is not text", needs="plain keys", line=line)
            continue
        key = str(key_node.value)
        here = (*path, key)
        if key in plain:
            first = document.lines[here]
            document.add(
                here,
                found=f"the key again (first on line {first})",
                needs="each key once",
                line=line,
            )
            continue
        document.lines[here] = line
        plain[key] = _plain(value_node, here, document)
    return plain


def _line(node: Node) -> int:
    return node.start_mark.line + 1 if node.start_mark is not None else 1


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def scalar_value(text: str) -> str | int | float | bool | None:
    """The value of an unquoted scalar under our rules; everything that is not clearly something else is text."""
    if text in ("", "~", "null"):
        return None
    if text in ("true", "false"):
        return text == "true"
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if number not in (float("inf"), float("-inf")) else text
    return text
