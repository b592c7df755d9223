"""Writes the pages and blocks that come out of the code, or says which are stale.

    configuration.md    from the schemas
    cli.md              from `--help` of every command
    metrics.md          from the metrics of data server and orchestrator

`make docs` writes them; `make check` and tests/architecture run it with `--check`. The calls in grpcurl.md come from
a server that runs: see examples/grpcurl_tour.py.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from command_reference import cli_page
from configuration_tables import configuration_page
from metric_tables import metrics_page

DOCS = Path(__file__).resolve().parent
PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration_page,
    "cli.md": cli_page,
    "metrics.md": metrics_page,
}


def main() -> int:
    """Entry point; with `--check`, the exit code says whether all pages are fresh."""
    parser = argparse.ArgumentParser(description="Write the generated pages of docs/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is stale")
    check = parser.parse_args().check
    pages = {DOCS / name: write() for name, write in PAGES.items()}
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if not check:
            path.write_text(pages[path])
        print(f"docs/{path.name}: {'stale; run `make docs`' if check else 'written'}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
