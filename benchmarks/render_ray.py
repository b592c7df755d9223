"""How the Ray engine scales: conversations rendered by one worker and by two, in clusters of this machine.

    rate   rows a second
    busy   seconds that workers rendered in each second: 2 where both always had work

Both while all workers render: from the moment at which they do, for some seconds, up to the one at which the first part
was begun that is not done then. Neither Ray's start nor its end counts, and a run takes no longer on a slow machine.
Where other programs take the processors, `busy` still tells whether the work was shared out: it is what `rate` gains by
with a processor for each worker. Runs are interleaved, and compared in pairs.
"""

import os
import pydoc_data.topics
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

from benchmarks import render as single
from benchmarks.report import Spread, report
from dataserver.render.job import Work
from dataserver.render.on_ray import RayEngine
from dataserver.render.part import part_name, part_report
from dataserver.render.rows import chunks_of, find_input
from dataserver.render_options import RenderOptions

RUNS, WORKERS, ROWS = 3, (1, 2), 20_000
# Of a run, and of how many parts of each worker at least.
SECONDS, PARTS = 12.0, 3


def main():
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        paragraphs = [text for topic in pydoc_data.topics.topics.values() for text in topic.split("\n\n") if text]
        single.write_conversations(folder / "chats.jsonl", paragraphs, ROWS)
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
    parts = {}
    with closing(RayEngine(None, workers)(work)) as done:
        for _ in done:
            first, last = seen(out, workers, parts)
            if last - first >= SECONDS and len(parts) >= PARTS * workers:
                break
    # Each part's share in the time that counts.
    shares = [(max(0.0, min(end, last) - max(begin, first)), end - begin, rows) for begin, end, rows in parts.values()]
    rate = sum(rows * share / taken for share, taken, rows in shares) / (last - first)
    return rate, sum(share for share, _, _ in shares) / (last - first)


def seen(out, workers, parts):
    """Since when all workers render, and up to when all that they did is known. Adds what is done now to `parts`:
    beginning, end and rows by number."""
    under_way = []
    for number in {int(path.name[5:11]) for path in out.iterdir()} - parts.keys():
        path, counts = out / part_name(number), part_report(out, number)
        if counts is not None:
            parts[number] = begun(path), path.with_suffix(".json").stat().st_mtime, counts.rows
        else:
            under_way.append(begun(path))
    done = sorted(parts.values())
    begins = (at for at, _, _ in done if sum(begin <= at < end for begin, end, _ in done) == workers)
    last = min(under_way, default=done[-1][0])
    return next(begins, last), last


def begun(part):
    """When a part was begun: its file is made at its beginning and keeps its inode."""
    path = next(part.parent.glob(f"{part.stem}.*.tmp"), part) if not part.exists() else part
    command = ["stat", "-c", "%.9W", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else begun(part)  # it got its name just now


if __name__ == "__main__":
    main()
