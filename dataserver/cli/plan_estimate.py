"""`dataserver plan estimate`: what a run would consume and how well it would be packed, before it is started."""

import argparse
import json
import math
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dataserver.cli.numbers import MAX_RANKS, whole_number
from dataserver.errors import InvalidConfigError

if TYPE_CHECKING:
    from dataserver.config import ServerConfig
    from dataserver.planning.plan import Plan
    from dataserver.run_spec import BatchSpec, RunSpec
    from dataserver.streaming.catalog import StoreCatalog
    from dataserver.streaming.contexts import RunContext

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

# Steps that are planned to the end; the others are taken to be like them.
_STEPS_PLANNED: Final = 16


def add_estimate_verb(verbs: "Subparsers") -> None:
    """Add `plan estimate`."""
    purpose = "estimate steps, epochs, tokens and packing of a run from its spec and its stores"
    parser = verbs.add_parser("estimate", help=purpose, description=purpose)
    parser.add_argument("spec", type=Path, metavar="SPEC", help="a trainer's TOML, or a run spec as TOML or JSON")
    parser.add_argument(
        "--world-size", type=whole_number(1, MAX_RANKS), required=True, metavar="R", help="data-parallel ranks"
    )
    parser.add_argument("--config", type=Path, metavar="CONFIG.toml", help="the server's configuration, for its stores")
    parser.add_argument(
        "--store", action="append", default=[], metavar="NAME=PATH", help="where a store is; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.set_defaults(handler=_estimate)


def _estimate(arguments: argparse.Namespace) -> int:
    from dataserver.config import load_config
    from dataserver.streaming.catalog import open_catalog
    from dataserver.streaming.contexts import build_context

    spec = read_run_spec(arguments.spec)
    stores = dict(_store_flag(flag) for flag in arguments.store)
    config = load_config(arguments.config, os.environ, {"stores": stores} if stores else {})
    wanted = {source.store for source in spec.order.sources}
    config = config.model_copy(
        update={"stores": {name: store for name, store in config.stores.items() if name in wanted}}
    )
    for name, store in config.stores.items():
        if store.admission == "lazy":
            raise InvalidConfigError(
                f"store {name!r} is admitted lazily: how long its rows are is not known, and an estimate needs it. "
                "Admit it eagerly; `dataserver store index` does the pass ahead of time"
            )
    catalog = open_catalog(config)
    try:
        render_text_sources(catalog, config)
        context = build_context(spec.order, catalog)
        context.check_vocabulary(spec.vocab_size)
        context.check_images(allowed=spec.images)
        estimate = _estimated(context, spec.batch, _first_plans(context, spec.batch, arguments.world_size))
    finally:
        catalog.close()
    print(json.dumps(estimate) if arguments.json else _text(estimate))
    return 0


def render_text_sources(catalog: "StoreCatalog", config: "ServerConfig") -> None:
    """Render and admit what is coming, here: nobody is served meanwhile."""
    from dataserver.render import rendered
    from dataserver.stores import default_index_dir, open_store

    for name in catalog.coming:
        settings = config.stores[name]
        if settings.render is not None:
            path = rendered(
                settings.path, settings.render, config.index_dir or default_index_dir(),
                storage_options=settings.storage, progress=lambda _: None,
            )  # fmt: skip
            catalog.admit(name, open_store(path, index_dir=config.index_dir))


def read_run_spec(path: Path) -> "RunSpec":
    """The run spec in a file: under `run`, as in a trainer's TOML, or the whole file.

    Raises `InvalidConfigError` for a file that cannot be read, `InvalidSpecError` for what is no run spec.
    """
    from pydantic import ValidationError

    from dataserver.run_spec import RunSpec
    from dataserver.wire.messages import spec_error

    try:
        text = path.read_text()
        fields = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise InvalidConfigError(f"cannot read the run spec {path}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidConfigError(f"the run spec {path} is neither TOML nor, named .json, JSON: {error}") from error
    run = fields.get("run", fields) if isinstance(fields, dict) else fields
    if not isinstance(run, dict):
        raise InvalidConfigError(f"the run spec {path} holds no table")
    try:
        return RunSpec.model_validate({name: value for name, value in run.items() if name in RunSpec.model_fields})
    except ValidationError as error:
        raise spec_error(error) from error


def _first_plans(context: "RunContext", batch: "BatchSpec", dp_world_size: int) -> list["Plan"]:
    from dataserver.planning.plan import EndOfRun

    cursor = context.planner.initial_cursor()
    plans: list[Plan] = []
    while len(plans) < max(_STEPS_PLANNED, batch.lookahead_steps):
        plan = context.planner.plan(cursor, batch, dp_world_size)
        if isinstance(plan, EndOfRun):
            break
        plans.append(plan)
        cursor = plan.end
    return plans


def _estimated(context: "RunContext", batch: "BatchSpec", plans: list["Plan"]) -> dict[str, Any]:
    """Counts of stores are exact; steps beyond the planned ones are taken to be like these.

    Rows that weights leave out or repeat are taken to be as long as the others of their source.
    """
    stage = context.stages[0]
    epoch_tokens = sum(stage.epoch_tokens)
    step_tokens = sum(plan.token_count for plan in plans) / len(plans)
    steps, epochs = _length(batch, plans, epoch_tokens / step_tokens)
    return {
        "steps": steps,
        "epochs": epochs,
        "epoch_samples": stage.epoch_samples,
        "tokens": round(epochs * epoch_tokens),
        "step_tokens": step_tokens,
        "step_rounds": sum(len(plan.rounds) for plan in plans) / len(plans),
        "most_rounds": max(len(plan.rounds) for plan in plans),
        "fewest_rounds": min(len(plan.rounds) for plan in plans if not plan.last or len(plans) == 1),
        "steps_planned": len(plans),
        "token_efficiency": _mean([plan.figures.token_efficiency for plan in plans]),
        "rank_imbalance": _mean([plan.figures.rank_imbalance for plan in plans]),
        "round_inflation": _mean([plan.figures.round_inflation for plan in plans]),
        "alignment_padding": _mean([_padding(plan, batch.alignment) for plan in plans]),
        "sources": [
            {
                "store": source.store,
                "rows": view.rows,
                "dropped": dict(view.dropped),
                "epoch_tokens": round(of_epoch),
                "cut_tokens": round(view.cut_tokens * times),
                "share": of_epoch / epoch_tokens,
                "tokens": round(epochs * of_epoch),
                "repeats": epochs * times,
            }
            for source, view, times, of_epoch in zip(
                stage.order.sources, stage.views, stage.passes, stage.epoch_tokens, strict=True
            )
        ],
    }


def _length(batch: "BatchSpec", plans: list["Plan"], epoch_steps: float) -> tuple[int, float]:
    """Steps and epochs of the run; of one epoch where the spec has no end."""
    if plans[-1].last:
        return len(plans), len(plans) / epoch_steps
    by_epochs = math.ceil((batch.max_epochs or 1) * epoch_steps)
    if batch.max_steps is None or (batch.max_epochs is not None and by_epochs < batch.max_steps):
        return by_epochs, float(batch.max_epochs or 1)
    return batch.max_steps, batch.max_steps / epoch_steps


def _padding(plan: "Plan", alignment: int) -> float:
    """Positions of padding for each token."""
    return float((-plan.lengths % alignment).sum()) / plan.token_count


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _store_flag(flag: str) -> tuple[str, dict[str, str]]:
    name, equals, path = flag.partition("=")
    if not name or not equals or not path:
        raise InvalidConfigError(f"--store {flag}: give NAME=PATH, for instance --store chat=/data/chat")
    return name, {"path": path}


def _text(estimate: dict[str, Any]) -> str:
    lines = [
        f"steps        about {estimate['steps']:,}, {estimate['epochs']:.2f} epochs of "
        f"{estimate['epoch_samples']:,} samples, {estimate['tokens']:,} tokens",
        f"a step       {estimate['step_tokens']:,.0f} tokens in {estimate['step_rounds']:.1f} rounds, "
        f"{100 * estimate['alignment_padding']:.1f} % padding (mean of the first {estimate['steps_planned']})",
        f"packing      token efficiency {estimate['token_efficiency']:.4f}, rank imbalance "
        f"{estimate['rank_imbalance']:.4f}, round inflation {estimate['round_inflation']:.4f}",
    ]
    if estimate["fewest_rounds"] < estimate["most_rounds"]:
        lines.append(
            f"warning      steps take {estimate['fewest_rounds']} to {estimate['most_rounds']} rounds, so some spill "
            "into a round that is almost empty: lower step_tokens by a per cent or two, or give step_rounds"
        )
    for source in estimate["sources"]:
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in source["dropped"].items()) or "none"
        lines.append(
            f"{source['store']}: {source['rows']:,} rows, {100 * source['share']:.1f} % of all tokens, "
            f"{source['tokens']:,} tokens ({source['repeats']:.2f} times each row), "
            f"{source['cut_tokens']:,} cut off an epoch, dropped {dropped}"
        )
    return "\n".join(lines)
