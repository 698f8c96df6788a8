"""`tinyllm-chat`, and `python -m tinyllm_chat`."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from tinyllm_chat.cli.program import program

        program(prog_name="tinyllm-chat")
    except KeyboardInterrupt:  # while modules were still being imported
        sys.exit(130)


if __name__ == "__main__":
    main()
