"""Tables as Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

__all__ = ["write_parquet"]


def write_parquet(table: pandas.DataFrame, file: Path, *, compression: str = "snappy") -> None:
    """Write a table without its index, by a stream: pyarrow cannot open a file whose name is not UTF-8.

    Args:
      table: Table, whose columns have one type each.
      file: File to write, whatever its name.
      compression: Name of the compression of the columns.
    """
    import pyarrow
    import pyarrow.parquet

    columns = pyarrow.Table.from_pandas(table, preserve_index=False)
    with file.open("wb") as stream:  # not `DataFrame.to_parquet`: pandas 2.2 replaces a stream by the name of its file
        pyarrow.parquet.write_table(columns, stream, compression=compression)
