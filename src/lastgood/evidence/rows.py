"""Records as a table for Arrow or pandas: what `lastgood.open(...)` gives.

The records themselves stay typed objects; a table is made only when it is asked for, so that nothing here needs
pyarrow or pandas to be installed. Every column has a type, a unit and a sentence, which the Arrow schema carries too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

from lastgood.base.errors import MissingExtra

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

T = TypeVar("T")


class Field(NamedTuple):
    """One column: its name, what its cells are, their unit, and what they say."""

    name: str
    type: str
    """`int`, `float`, `text`, `truth`, `time`, `ints` or `texts`; any cell may be null, which means *not known*."""
    unit: str
    text: str
    take: Callable[[Any], Any]
    """From a record to its cell."""


class Rows(Sequence[T], Generic[T]):
    """Records in order, and the same as a table."""

    def __init__(
        self, items: Sequence[T], fields: Sequence[Field], *, about: dict[str, str]
    ) -> None:
        """Use `lastgood.open(...)` instead."""
        self._items = tuple(items)
        self.fields = tuple(fields)
        """The columns of the table, in order."""
        self.about = about
        """What holds for the table as a whole, such as its grouping rule; the Arrow schema carries it too."""

    def __len__(self) -> int:
        """How many records."""
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        """The records in order."""
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        """One record, or a few."""
        return self._items[index]

    def __repr__(self) -> str:
        """What it is, without the records."""
        told = ", ".join(f"{key} {value}" for key, value in self.about.items())
        return f"<{len(self):,} {type(self).__name__.lower()}{f': {told}' if told else ''}>"

    def arrow(self) -> pa.Table:
        """The records as an Arrow table; each column's unit and meaning are in the metadata of its field.

        Raises:
            MissingExtra: pyarrow is not installed; the message has the command that does it.
        """
        try:
            import pyarrow as pa
        except ImportError as missing:
            raise MissingExtra(
                module="pyarrow", extra="analysis", where=f"{type(self).__name__}.arrow()"
            ) from missing
        types = _arrow_types(pa)
        arrays = [
            pa.array([field.take(item) for item in self._items], types[field.type])
            for field in self.fields
        ]
        schema = pa.schema(
            [
                pa.field(f.name, types[f.type], metadata={"unit": f.unit, "description": f.text})
                for f in self.fields
            ],
            metadata=self.about,
        )
        return pa.Table.from_arrays(arrays, schema=schema)

    def pandas(self) -> pd.DataFrame:
        """The records as a data frame. Whole numbers and truths are nullable, times are UTC, `attrs` says the rest.

        Raises:
            MissingExtra: pandas or pyarrow is not installed; the message has the command that does it.
        """
        try:
            import pandas as pd
        except ImportError as missing:
            raise MissingExtra(
                module="pandas", extra="analysis", where=f"{type(self).__name__}.pandas()"
            ) from missing
        table = self.arrow()
        import pyarrow as pa

        nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
        frame = table.to_pandas(types_mapper=nullable.get)
        frame.attrs = {**self.about, "units": {f.name: f.unit for f in self.fields if f.unit}}
        return frame


def _arrow_types(pa: Any) -> dict[str, Any]:
    return {
        "int": pa.int64(),
        "float": pa.float64(),
        "text": pa.string(),
        "truth": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
        "ints": pa.list_(pa.int64()),
        "texts": pa.list_(pa.string()),
    }
