"""Several sources in one store: the rows that a run over the sources would draw, in its order."""

import json
from pathlib import Path

import numpy as np
import pytest

from dataserver.errors import InvalidConfigError
from dataserver.render import LocalEngine
from dataserver.render.job import job_key, render_store
from dataserver.render.mixture import Mixture, render_mixture
from dataserver.render.rows import find_input
from dataserver.render_options import RenderOptions
from dataserver.run_spec import OrderSpec, Shuffle, Source
from dataserver.sampling.build import sample_order
from dataserver.sampling.order import Place
from dataserver.stores import open_store
from dataserver.weighting import Stopping

COUNTS = {"math": 30, "code": 11}


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("sources")
    for name, count in COUNTS.items():
        rows = [{"prompt": f"{name} {n}", "completion": f"{n} of {name}"} for n in range(count)]
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {name: directory / f"{name}.jsonl" for name in COUNTS}


def mix(sources, out, tokenizer, **how):
    mixture = Mixture(sources=tuple((name, find_input(path)) for name, path in sources.items()), **how)
    options = RenderOptions(tokenizer=tokenizer)
    return render_mixture(mixture, out, options, engine=LocalEngine(1), progress=lambda *_: None)


def rows_of(path: Path, index_dir: Path) -> list[list[int]]:
    with open_store(path, index_dir=index_dir) as store:
        return [row.input_ids.tolist() + row.loss_mask.tolist() for row in store]


def drawn_by_a_run(sources, tokenizer, tmp_path, **how) -> list[list[int]]:
    """The first epoch of a run over stores of the sources."""
    options, rows = RenderOptions(tokenizer=tokenizer), []
    stores = []
    for name, path in sources.items():
        found = find_input(path)
        place = tmp_path / f"store-{name}"
        render_store(
            found, place, options, key=job_key(found, options), engine=LocalEngine(1), progress=lambda *_: None
        )
        stores.append(open_store(place, index_dir=tmp_path / "index"))
        rows.append(rows_of(place, tmp_path / "index"))
    weights = how.pop("weights", (None, None))
    spec = OrderSpec(
        sources=tuple(Source(store=name, weight=weight) for name, weight in zip(sources, weights, strict=True)),
        shuffle=Shuffle.SEQUENTIAL,
        max_length=1000,
        **how,
    )
    order = sample_order(spec, [store.view(1000) for store in stores])
    samples = order.samples(Place(), order.epoch_size)
    for store in stores:
        store.close()
    return [rows[source][row] for source, row in zip(samples.source.tolist(), samples.row.tolist(), strict=True)]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"weights": (0.5, 0.5), "stopping": Stopping.FIRST_EXHAUSTED},
        {"weights": (1.0, 3.0), "stopping": Stopping.ALL_EXHAUSTED},
        {"weights": (0.9, 0.1), "stopping": Stopping.ALL_EXHAUSTED_WITHOUT_REPLACEMENT},
    ],
    ids=lambda how: str(how.get("stopping", "union")),
)
def test_a_mixture_is_the_first_epoch_of_a_run_over_its_sources(sources, chatml, tmp_path, how):
    report = mix(sources, tmp_path / "out", chatml, **how)
    found = rows_of(tmp_path / "out", tmp_path / "index")
    assert found == drawn_by_a_run(sources, chatml, tmp_path, **how)
    assert (report.rows, report.samples) == (sum(COUNTS.values()), len(found))
    assert report.tokens == sum(len(row) // 2 for row in found)
    again = mix(sources, tmp_path / "out", chatml, **how)
    assert again == report
    assert not list(tmp_path.glob("*.rendering-*"))


def test_a_mixture_that_was_cut_off_goes_on_and_gives_the_same_bytes(sources, chatml, tmp_path):
    how = {"weights": (1.0, 1.0)}
    mix(sources, tmp_path / "whole", chatml, **how)

    class CutOffError(RuntimeError):
        pass

    calls = []

    def engine(work):
        calls.append(work)
        if len(calls) == 2:
            raise CutOffError
        yield from LocalEngine(1)(work)

    mixture = Mixture(sources=tuple((name, find_input(path)) for name, path in sources.items()), **how)
    options = RenderOptions(tokenizer=chatml)
    with pytest.raises(CutOffError):
        render_mixture(mixture, tmp_path / "out", options, engine=engine, progress=lambda *_: None)
    assert not (tmp_path / "out").exists()
    render_mixture(mixture, tmp_path / "out", options, engine=engine, progress=lambda *_: None)
    assert len(calls) == 3, "what was rendered is not rendered again"
    for part in sorted((tmp_path / "whole").glob("part-*")):
        assert part.read_bytes() == (tmp_path / "out" / part.name).read_bytes()


@pytest.mark.parametrize(
    ("weights", "reason"),
    [((1.0,), "1 weights for 2 sources"), ((0.0, 0.0), "weights of all sources are 0"), ((-1.0, 1.0), "greater than")],
)
def test_weights_that_cannot_be_are_refused_before_anything_is_rendered(sources, chatml, tmp_path, weights, reason):
    with pytest.raises(InvalidConfigError, match=reason):
        mix(sources, tmp_path / "out", chatml, weights=weights)
    assert not list(tmp_path.iterdir())


def test_a_share_is_what_its_weight_says(sources, chatml, tmp_path):
    mix(sources, tmp_path / "out", chatml, weights=(1.0, 3.0), stopping=Stopping.ALL_EXHAUSTED)
    with open_store(tmp_path / "out", index_dir=tmp_path / "index") as store:
        lengths = np.array([len(row.input_ids) for row in store])
    assert abs(len(lengths) - 4 * COUNTS["math"]) <= 4, "math is exhausted last, and has a quarter of the draws"


def test_what_cannot_be_written_is_told_in_one_way_by_a_mixture_and_by_one_source(sources, chatml, tmp_path):
    (tmp_path / "file").write_text("no directory")
    out, options = tmp_path / "file" / "out", RenderOptions(tokenizer=chatml)
    for source in sources.values():
        found = find_input(source)
        with pytest.raises(InvalidConfigError, match=r"cannot be written .* What was rendered is kept"):
            render_store(found, out, options, key=job_key(found, options), engine=LocalEngine(1), progress=print)
    with pytest.raises(InvalidConfigError, match=r"cannot be written .* What was rendered is kept"):
        mix(sources, out, chatml)
