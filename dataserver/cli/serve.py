"""`dataserver serve`: run a data server."""

import argparse
import os
from pathlib import Path
from typing import Any

from dataserver.errors import InvalidConfigError


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command. Everything heavy is imported when it runs."""
    parser = commands.add_parser("serve", help="serve stores", description=__doc__)
    parser.add_argument("config", nargs="?", type=Path, metavar="CONFIG.toml", help="configuration file")
    parser.add_argument(
        "--store",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="a store to serve, by path or URL; may be repeated",
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="address of the service; port 0 takes a free one")
    parser.add_argument("--metrics-listen", metavar="HOST:PORT", help="address of Prometheus' /metrics; '' for none")
    parser.add_argument("--ledger", metavar="URL", help="sqlite:///FILE or postgresql://USER@HOST/DATABASE")
    parser.add_argument("--index-dir", metavar="DIR", help="directory of manifests and indexes")
    parser.add_argument("--workers", metavar="N", help="processes that share the address")
    parser.add_argument("--max-steps-ahead", metavar="N", help="steps sealed beyond the one being consumed")
    parser.add_argument("--token-file", metavar="FILE", help="file with the token that calls must carry")
    parser.add_argument("--tls-certificate", metavar="FILE", help="PEM file with the certificate chain")
    parser.add_argument("--tls-key", metavar="FILE", help="PEM file with the private key")
    parser.add_argument("--log-format", choices=("text", "json"), help="log lines for people or for programs")
    parser.add_argument(
        "--insecure", action="store_true", default=None, help="listen beyond loopback without TLS or token"
    )
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; return the exit status."""
    from dataserver.config import describe_config, load_config

    config = load_config(arguments.config, os.environ, flags_of(arguments))

    from dataserver.hosting.logs import set_up_logs
    from dataserver.server.process import serve
    from dataserver.server.supervisor import supervise

    set_up_logs(config.log_format)
    for line in describe_config(config):
        _say(line)
    if not config.stores:
        _say("warning: no store is configured, so that no run can be created: give [stores] or --store NAME=PATH")
    return serve(config, _say) if config.workers == 1 else supervise(config, _say)


def flags_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given as flags."""
    given = {
        name: value
        for name in (
            "listen", "metrics_listen", "ledger", "index_dir", "workers", "max_steps_ahead", "token_file",
            "log_format", "insecure",
        )
        if (value := getattr(arguments, name)) is not None
    }  # fmt: skip
    if arguments.tls_certificate is not None or arguments.tls_key is not None:
        given["tls"] = {
            name: value
            for name, value in (("certificate", arguments.tls_certificate), ("key", arguments.tls_key))
            if value is not None
        }
    if arguments.store:
        given["stores"] = _store_flags(arguments.store)
    return given


def _store_flags(flags: list[str]) -> dict[str, dict[str, str]]:
    stores: dict[str, dict[str, str]] = {}
    for flag in flags:
        name, store = _store_flag(flag)
        if name in stores:
            raise InvalidConfigError(
                f"--store {name} is given twice, with {stores[name]['path']} and {store['path']}: a store has one path"
            )
        stores[name] = store
    return stores


def _store_flag(flag: str) -> tuple[str, dict[str, str]]:
    name, equals, path = flag.partition("=")
    if not name or not equals or not path:
        raise InvalidConfigError(f"--store {flag}: give NAME=PATH, for instance --store chat=/data/chat")
    return name, {"path": path}


def _say(line: str) -> None:
    print(line, flush=True)
