"""Results as CSV and JSON, for whoever goes on with them elsewhere."""

import csv
import json
from collections.abc import Sequence
from typing import TextIO

from orchestrator.results.records import Answer, EvalResult, VersionTokens

_FIXED = ("run", "name", "attempt", "version", "due", "state", "samples", "scored", "create_time", "end_time", "detail")


def plain_result(result: EvalResult) -> dict[str, object]:
    """A result of plain values, as JSON can say them; `versions` counts tokens by the version that made them."""
    return {
        "eval_id": result.eval_id,
        "run": result.run,
        "name": result.name,
        "attempt": result.version.attempt,
        "version": result.version.number,
        "due": result.due,
        "state": result.state.value,
        "samples": result.samples,
        "scored": result.scored,
        "figures": dict(result.figures),
        "versions": plain_versions(result.version_tokens),
        "create_time": result.create_time,
        "end_time": result.end_time,
        "detail": result.detail,
    }


def plain_answer(answer: Answer) -> dict[str, object]:
    """An answer of plain values."""
    return {
        "prompt": answer.prompt,
        "sample": answer.sample,
        "reward": answer.reward,
        "text": answer.text,
        "tokens": answer.tokens,
        "finish_reason": answer.finish_reason,
        "versions": plain_versions(answer.version_tokens),
        "engine": answer.engine,
    }


def plain_versions(parts: Sequence[VersionTokens]) -> dict[str, int]:
    """Tokens by the label of the version that made them; `unknown` for weights without one."""
    return {"unknown" if part.version is None else str(part.version): part.tokens for part in parts}


def write_json(results: Sequence[EvalResult], out: TextIO) -> None:
    """Write a list of objects."""
    json.dump([plain_result(result) for result in results], out, indent=2)
    out.write("\n")


def write_csv(results: Sequence[EvalResult], out: TextIO) -> None:
    """Write a line a result: its fields, then a column for every figure that any of them has, and the versions."""
    figures = sorted({name for result in results for name in result.figures})
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_FIXED, *figures, "versions"])
    for result in results:
        plain = plain_result(result)
        versions = " ".join(f"{label}:{tokens}" for label, tokens in plain_versions(result.version_tokens).items())
        writer.writerow(
            [plain[name] for name in _FIXED] + [result.figures.get(name, "") for name in figures] + [versions]
        )
