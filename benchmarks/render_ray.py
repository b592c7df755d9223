"""How the Ray engine scales: conversations rendered by one worker and by two, in clusters of this machine.

    rate   rows a second from the first part's beginning to the last part's end, so that Ray's start does not count
    busy   seconds that workers rendered in each second of that: 2 where both always had work

Where other programs take the processors, `busy` still tells whether the work was shared out: it is what `rate` gains by
with a processor for each worker. Runs are interleaved.
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
    work = Work(source=source, chunks=chunks_of(source), options=options, directory=out)
    rows = sum(counts.rows for _, counts in RayEngine(None, workers)(work))
    spans = [span(path) for path in out.glob("*.arrow")]
    seconds = max(end for _, end in spans) - min(begin for begin, _ in spans)
    return rows / seconds, sum(end - begin for begin, end in spans) / seconds


def span(part):
    """When a part was begun and done: its file is made at its beginning and keeps its inode; its report comes last."""
    begun = subprocess.run(["stat", "-c", "%.9W", str(part)], capture_output=True, text=True, check=True).stdout  # noqa: S607
    return float(begun), part.with_suffix(".json").stat().st_mtime


if __name__ == "__main__":
    main()
