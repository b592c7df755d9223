"""What must hold when a story is over."""

from collections.abc import Iterable
from contextlib import closing

from crashlab.rank import RUN

from orchestrator.results import Answer, EvalResult, EvalState, open_results
from orchestrator.testing.events import read_events
from orchestrator.testing.fake_tokens import decode, encode, token_at
from synclab.cell import STEPS, Cell
from synclab.programs import EVALS
from synclab.versions import VersionBook, misnomers_in

PROMPTS = ("one", "two")


def complaints_about(cell: Cell, *, spared: bool = False) -> list[str]:
    """All of it; empty when all is well. `spared`: nothing happened that excuses an eval that failed."""
    checksums = VersionBook(cell.directory / "versions.jsonl").read()
    two_faced = [f"version {label} had {len(found)} checksums" for label, found in checksums.items() if len(found) > 1]
    known = {label: next(iter(found)) for label, found in checksums.items()}
    misnomers = misnomers_in(cell.directory)
    return [*two_faced, *misnomers, *_engines(cell, known), *_results(cell, known, spared=spared), *cell.audit()]


def _engines(cell: Cell, known: dict[str, str]) -> Iterable[str]:
    """No engine served a mix, and what it called a version was that version, byte for byte."""
    for path in sorted((cell.directory / "engines").glob("*.jsonl")):
        for event in read_events(path):
            if event["kind"] in {"torn", "stale"}:
                yield f"engine {path.stem}: {event}"
            elif event["kind"] == "synced" and known.get(event["label"].partition("/")[0]) != event["checksum"]:
                yield f"engine {path.stem} served as {event['label']} what was not that version: {event}"


def _results(cell: Cell, known: dict[str, str], *, spared: bool) -> Iterable[str]:
    """The last version was evaluated, or it is told why not; results name who made them, and answers are theirs."""
    with closing(open_results(f"sqlite:///{cell.directory / 'results.db'}")) as table:
        results = table.find(run=RUN)
        answers = {result.eval_id: table.answers_of(result) for result in results}
    for eval_ in EVALS:
        last = [each for each in results if each.name == eval_["name"] and each.version.number == STEPS]
        if not any(each.state is EvalState.DONE or (each.detail and not spared) for each in last):
            yield f"the last version was not measured by {eval_['name']}: {results}"
    for result in results:
        if result.state is EvalState.DONE:
            yield from _result(result, answers[result.eval_id], known, pinned=result.name == "pinned")


def _result(result: EvalResult, answers: list[Answer], known: dict[str, str], *, pinned: bool) -> Iterable[str]:
    if len(answers) != len(PROMPTS):
        yield f"{result.eval_id} has {len(answers)} answers"
    versions = {part.version for part in result.version_tokens}
    if None in versions:
        yield f"{result.eval_id} counts answers of the weights that an engine started with"
    if pinned and versions != {result.version}:
        yield f"{result.eval_id} is pinned, and was made by {versions}"
    for answer in answers:
        said = "".join(_said(answer, known))
        if said != answer.text:
            yield f"{result.eval_id}: {answer.text!r} was not made by {answer.version_tokens}, which say {said!r}"


def _said(answer: Answer, known: dict[str, str]) -> Iterable[str]:
    """What the versions that an answer names say, each where its turn is."""
    place = 0
    prompt = encode(PROMPTS[answer.prompt])
    for part in answer.version_tokens:
        checksum = known.get(str(part.version), "")
        tokens = [token_at(checksum, prompt, answer.sample, place + offset) for offset in range(part.tokens)]
        yield decode(tokens)
        place += part.tokens
