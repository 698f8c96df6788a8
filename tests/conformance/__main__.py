"""The command line of the tables."""

from __future__ import annotations

import argparse
import sys

from support.all_kernels import compile_all_kernels

from tests.conformance import architectures, texts, types
from tests.conformance.table import Table

TABLES = {"types": types.table, "architectures": architectures.table, "texts": texts.table}
COMPUTED = {"types", "architectures"}  # with kernels


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="The engine against recorded answers. Exit code 0: there are rows, and all of them pass.",
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; all if none is named")
    parser.add_argument("-k", dest="part", default="", metavar="TEXT", help="only rows with this in their name")
    arguments = parser.parse_args()
    unknown = set(arguments.tables) - TABLES.keys()
    if unknown:
        parser.error(f"there is no table {sorted(unknown)[0]!r}: expected some of {', '.join(TABLES)}")
    names = arguments.tables or list(TABLES)
    if not arguments.part and COMPUTED & set(names):
        compile_all_kernels()  # on all processors; a few rows compile what they need by themselves
    failed = rows = 0
    for name in names:
        table: Table = TABLES[name](arguments.part)
        table.print()
        failed += table.failed
        rows += len(table.rows)
    print(f"{rows - failed} of {rows} rows pass")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
