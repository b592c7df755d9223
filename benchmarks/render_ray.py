"""How the Ray engine scales: conversations rendered by one worker and by two, in clusters of this machine.

    rate   rows a second
    busy   seconds that workers rendered in each second: 2 where both always had work

Both from the moment at which all workers render to the one at which the last part is begun, so that neither Ray's start
nor the rest that one worker ends alone counts. Where other programs take the processors, `busy` still tells whether the
work was shared out: it is what `rate` gains by with a processor for each worker. Runs are interleaved.
"""

import os
import pydoc_data.topics
import subprocess
import tempfile
from pathlib import Path

from benchmarks import render as single
from benchmarks.report import Spread, report
from dataserver.render.job import Work
from dataserver.render.on_ray import RayEngine
from dataserver.render.part import part_name
from dataserver.render.rows import chunks_of, find_input
from dataserver.render_options import RenderOptions

RUNS, WORKERS = 3, (1, 2)


def main():
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        paragraphs = [text for topic in pydoc_data.topics.topics.values() for text in topic.split("\n\n") if text]
        single.write_conversations(folder / "chats.jsonl", paragraphs)
        single.build_tokenizer(folder / "qwen3", "qwen3")
        figures = {workers: [] for workers in WORKERS}
        for run in range(RUNS):
            for workers in WORKERS:
                out = folder / f"out-{run}-{workers}"
                figures[workers].append(render(folder, out, workers))
    rows = []
    for workers in WORKERS:
        rate, busy = (Spread.of(values) for values in zip(*figures[workers], strict=True))
        rows.append({"workers": workers, "rows/s": rate, "busy": busy})
    pairs = list(zip(figures[1], figures[2], strict=True))
    gains = [Spread.of([two[at] / one[at] for one, two in pairs]) for at in (0, 1)]
    rows.append({"workers": "2 / 1", "rows/s": gains[0], "busy": gains[1]})
    rows = [{**row, "workers": str(row["workers"])} for row in rows]
    report("render_ray", "Conversations to samples on Ray", rows, ["median (range)"])


def render(folder, out, workers):
    """Rows a second, and how many workers were busy on average."""
    source = find_input(folder / "chats.jsonl")
    options = RenderOptions(tokenizer=folder / "qwen3", family="qwen3")
    out.mkdir()
    chunks = chunks_of(source)
    work = Work(source=source, chunks=chunks, options=options, directory=out)
    parts = [(*span(out / part_name(number)), counts.rows) for number, counts in RayEngine(None, workers)(work)]
    begins = sorted(begin for begin, _, _ in parts)
    first = next(at for at in begins if sum(begin <= at < end for begin, end, _ in parts) == workers)
    seconds = begins[-1] - first
    within = [(max(0.0, min(end, begins[-1]) - max(begin, first)), end - begin, rows) for begin, end, rows in parts]
    rate = sum(rows * shared / taken for shared, taken, rows in within) / seconds
    return rate, sum(shared for shared, _, _ in within) / seconds


def span(part):
    """When a part was begun and done: its file is made at its beginning and keeps its inode; its report comes last."""
    begun = subprocess.run(["stat", "-c", "%.9W", str(part)], capture_output=True, text=True, check=True).stdout  # noqa: S607
    return float(begun), part.with_suffix(".json").stat().st_mtime


if __name__ == "__main__":
    main()
