"""Looking at stores over the wire: nothing is written, and one bad store hides no other."""

from pathlib import Path

import grpc
import pytest
from serverlab import PATIENCE_S, job_on

from dataserver.run_spec import LongRows
from dataserver.stores import open_store
from dataserver.testing import running_server, write_store
from dataserver.v1 import store_service_pb2 as pb
from dataserver.v1.store_service_pb2_grpc import StoreServiceStub

USELESS = [([1, 2, 3], [1, 0, 0]), ([], [])]


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_looking_at_a_store_with_any_max_length_writes_nothing(tmp_path: Path, kind) -> None:
    lengths = [5, 9, 3, 20, 2, 7]
    path = write_store(tmp_path / "chat", lengths=lengths, format=kind)
    view_of = open_store(path, index_dir=tmp_path / "elsewhere").view
    index_dir = tmp_path / "index"
    with running_server({"chat": path}, index_dir=index_dir) as server, job_on(server) as job:
        stores = StoreServiceStub(job.channel)
        before = sorted(index_dir.rglob("*"))
        for bound in range(2, 22):
            shown = stores.GetStore(pb.GetStoreRequest(store="chat", max_length=bound), timeout=PATIENCE_S).store
            view = view_of(bound, LongRows.TRUNCATE)
            assert (shown.kept_rows, shown.kept_tokens, shown.cut_tokens, dict(shown.dropped)) == (
                view.rows,
                view.kept_tokens,
                view.cut_tokens,
                view.dropped,
            )
            request = pb.ListSamplesRequest(store="chat", begin_row=3, end_row=4, max_length=bound)
            (sample,) = stores.ListSamples(request, timeout=PATIENCE_S).samples
            assert (sample.kept, sample.reason) == ((True, "") if bound > 6 else (False, "target_cut_off"))
            assert len(sample.input_ids) == len(sample.loss_mask) == min(bound, 20)
        stores.ListStores(pb.ListStoresRequest(), timeout=PATIENCE_S)
        assert sorted(index_dir.rglob("*")) == before
        assert not (index_dir / "views").exists()
        job.create()
        assert len(list((index_dir / "views").iterdir())) == 1, "the order of a run keeps its view"


def test_a_store_that_serves_nothing_is_listed_among_the_others(tmp_path: Path) -> None:
    useless = write_store(tmp_path / "useless", rows=USELESS)
    chat = write_store(tmp_path / "chat", lengths=[5, 6])
    with running_server({"useless": useless, "chat": chat}) as server, job_on(server) as job:
        stores = StoreServiceStub(job.channel)
        listed = stores.ListStores(pb.ListStoresRequest(), timeout=PATIENCE_S).stores
        shown = stores.GetStore(pb.GetStoreRequest(store="useless", max_length=2), timeout=PATIENCE_S).store
        request = pb.ListSamplesRequest(store="useless", begin_row=0, end_row=2)
        samples = stores.ListSamples(request, timeout=PATIENCE_S).samples
        job.create()
    assert [(store.name, store.kept_rows) for store in listed] == [("chat", 2), ("useless", 0)]
    assert dict(shown.dropped) == {"no_target": 1, "empty": 1}
    assert [sample.reason for sample in samples] == ["no_target", "empty"]


def test_links_out_of_a_store_are_shown(tmp_path: Path) -> None:
    outside = write_store(tmp_path / "blobs", lengths=[4]) / "data-00000-of-00001.arrow"
    chat = write_store(tmp_path / "chat", lengths=[5, 6])
    (chat / "more.arrow").symlink_to(outside)
    with running_server({"chat": chat}) as server, job_on(server) as job:
        shown = StoreServiceStub(job.channel).GetStore(pb.GetStoreRequest(store="chat"), timeout=PATIENCE_S).store
    assert [(link.path, link.target) for link in shown.links] == [("more.arrow", str(outside))]
    assert shown.rows == 3


def test_a_row_group_beyond_the_configured_bound_keeps_the_server_from_starting(tmp_path: Path) -> None:
    path = write_store(tmp_path / "big", lengths=[150_000], format="parquet")
    with running_server({"big": path}, block_cache_bytes=2**24):
        pass
    with (
        pytest.raises(Exception, match=r"data-00000-of-00001\.parquet', row group 0: .* block_cache_bytes = 1048576"),
        running_server({"big": path}, block_cache_bytes=2**20),
    ):
        pass


def test_a_range_of_rows_that_is_none_is_refused(tmp_path: Path) -> None:
    with running_server({"chat": write_store(tmp_path / "chat", lengths=[5])}) as server, job_on(server) as job:
        stores = StoreServiceStub(job.channel)
        for begin, end in ((1, 2), (-1, 1), (0, 0)):
            request = pb.ListSamplesRequest(store="chat", begin_row=begin, end_row=end, max_length=3)
            with pytest.raises(grpc.RpcError):
                stores.ListSamples(request, timeout=PATIENCE_S)
