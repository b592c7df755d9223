"""Run all benchmarks, or those named: `python -m benchmarks [NAME …]`."""

import importlib
import pkgutil
import sys

import benchmarks

NOT_A_BENCHMARK = {"__main__", "lengths", "report", "s3_server", "sync_receiver", "transports"}


def main() -> int:
    names = sorted({module.name for module in pkgutil.iter_modules(benchmarks.__path__)} - NOT_A_BENCHMARK)
    chosen = sys.argv[1:] or names
    unknown = set(chosen) - set(names)
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(names)}", file=sys.stderr)
        return 2
    for name in chosen:
        print(f"\n=== {name}", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
