"""What the data server tells about its stores."""

from dataserver.client.calls import Calls
from dataserver.errors import StoreNotReadyError
from dataserver.v1 import store_service_pb2 as stores_pb2
from dataserver.wire import stores
from dataserver.wire.build import built
from dataserver.wire.store_info import SampleInfo, StoreInfo


class StoreCalls:
    """The part of a client that asks about stores."""

    _calls: Calls

    def list_stores(self) -> list[StoreInfo]:
        """All stores, by name, with drops counted as if there were no `max_length`."""
        request = stores_pb2.ListStoresRequest()
        answers = self._calls.pages("StoreService/ListStores", request, stores_pb2.ListStoresResponse)
        return [stores.store_from_proto(store) for answer in answers for store in answer.stores]

    def get_store(self, store: str, *, max_length: int | None = None) -> StoreInfo:
        """The store, with drops and served tokens counted for `max_length`."""
        request = built(stores_pb2.GetStoreRequest, store=store, max_length=0 if max_length is None else max_length)
        return stores.store_from_proto(
            self._calls.unary("StoreService/GetStore", request, stores_pb2.GetStoreResponse).store
        )

    def await_store(self, store: str) -> None:
        """Return when the store is rendered, or will never be; at once for one that is ready.

        So that every rank may wait for itself, with no limit but that it comes nearer.
        """

        def check(answer: stores_pb2.GetStoreResponse) -> None:
            info = stores.store_from_proto(answer.store).rendering
            if info is not None:
                raise StoreNotReadyError(f"store {store!r} is {info.text()}", stage=info.stage, done=info.done)

        request = built(stores_pb2.GetStoreRequest, store=store)
        self._calls.unary("StoreService/GetStore", request, stores_pb2.GetStoreResponse, check=check)

    def list_samples(
        self, store: str, begin_row: int, end_row: int, *, max_length: int | None = None
    ) -> list[SampleInfo]:
        """Rows `begin_row` to before `end_row`, at most 1000, dropped ones too."""
        request = built(
            stores_pb2.ListSamplesRequest,
            store=store,
            begin_row=begin_row,
            end_row=end_row,
            max_length=0 if max_length is None else max_length,
        )
        answer = self._calls.unary("StoreService/ListSamples", request, stores_pb2.ListSamplesResponse)
        return [stores.sample_from_proto(sample) for sample in answer.samples]
