"""`dataserver store`: its verbs, one module each."""

import argparse

from dataserver.cli.store_cat import add_cat_verb
from dataserver.cli.store_check import add_check_verb
from dataserver.cli.store_index import add_index_verb
from dataserver.cli.store_prune import add_prune_verb
from dataserver.cli.store_pull import add_pull_verb
from dataserver.cli.store_remote import add_report_verb
from dataserver.cli.store_render import add_render_verb
from dataserver.cli.store_show import add_show_verb


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `store` and its verbs."""
    parser = subparsers.add_parser("store", help="make, check and look at stores")
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_check_verb(verbs)
    add_index_verb(verbs)
    add_prune_verb(verbs)
    add_cat_verb(verbs)
    add_show_verb(verbs)
    add_report_verb(verbs)
    add_render_verb(verbs)
    add_pull_verb(verbs)
