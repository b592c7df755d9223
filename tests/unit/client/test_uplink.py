"""Credits: whatever happens, no more micro-batches are under way than fit."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dataserver.client.uplink import Uplink
from dataserver.errors import InvalidRequestError
from dataserver.v1 import batch_service_pb2

OPENED = batch_service_pb2.Open(purpose=batch_service_pb2.PURPOSE_TRAIN, run="r")


class CreditAccounts(RuleBasedStateMachine):
    """The server's view and the training loop's, over connections that come and go."""

    @initialize(credits=st.integers(1, 20))
    def begin(self, credits):  # noqa: A002
        self.window = credits
        self.uplink = Uplink(opened=OPENED, credits=credits)
        self.buffered = self.may_send = 0
        self.requests = None
        self.excess = 0

    def read(self):
        while self.requests is not None and not self.requests.empty():
            request = self.requests.get()
            if request is not None and request.HasField("credit"):
                assert 1 <= request.credit.micro_batches <= self.window
                self.may_send += request.credit.micro_batches

    @precondition(lambda self: self.requests is None)
    @rule()
    def connect(self):
        requests = self.uplink.connect(3, None)
        opened = next(requests).open
        assert (opened.next_step, opened.run) == (3, "r")
        self.may_send = opened.credits
        # A connection needs one credit, even where the buffer is full; nothing else goes beyond the window.
        assert self.may_send == max(1, self.window - self.buffered)
        self.excess = max(0, self.buffered + 1 - self.window)
        self.requests = self.uplink._requests

    @precondition(lambda self: self.requests is not None)
    @rule()
    def disconnect(self):
        self.uplink.disconnect()
        self.requests, self.may_send = None, 0

    @precondition(lambda self: self.requests is not None and self.may_send)
    @rule(again=st.booleans())
    def arrive(self, again):
        self.may_send -= 1
        if again:
            self.uplink.passed_over()
        else:
            self.uplink.arrived()
            self.buffered += 1
        self.read()

    @precondition(lambda self: self.buffered)
    @rule()
    def take(self):
        self.buffered -= 1
        self.uplink.taken()
        self.read()

    @invariant()
    def no_more_is_under_way_than_fits(self):
        if hasattr(self, "window"):
            assert self.buffered + self.may_send <= self.window + self.excess

    @invariant()
    def the_stream_does_not_stall(self):
        if hasattr(self, "window") and self.requests is not None and not self.buffered:
            assert self.may_send >= max(1, self.window // 2) or self.may_send > self.window - max(1, self.window // 2)


TestCreditAccounts = CreditAccounts.TestCase
TestCreditAccounts.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("window", [1, 2, 8, 9])
def test_credits_are_given_back_half_a_window_at_a_time(window):
    uplink = Uplink(opened=OPENED, credits=window)
    requests = uplink.connect(1, None)
    assert next(requests).open.credits == window
    for _ in range(window):
        uplink.arrived()
    for _ in range(window):
        uplink.taken()
    uplink.half_close()
    half = max(1, window // 2)
    assert [request.credit.micro_batches for request in requests] == [half] * (window // half)


@pytest.mark.parametrize("wrong", [0, -1, 1025])
def test_impossible_credits_are_refused(wrong):
    with pytest.raises(InvalidRequestError, match=f"credits = {wrong}"):
        Uplink(opened=OPENED, credits=wrong)


def test_acks_are_cumulative_and_repeated_by_a_new_connection():
    uplink = Uplink(opened=OPENED, credits=1)
    uplink.ack(4)
    uplink.ack(3)
    requests = uplink.connect(5, None)
    assert next(requests).HasField("open")
    assert next(requests).ack.step == 4


def acked_offers(requests):
    found = []
    while not requests.empty():
        request = requests.get()
        if request is not None and request.HasField("ack"):
            found.append(request.ack.offer)
    return found


def test_an_offer_is_acknowledged_once_the_connection_has_brought_it():
    uplink = Uplink(opened=OPENED, credits=4)
    uplink.connect(9, None)
    uplink.offered(2)
    uplink.disconnect()
    opened = next(uplink.connect(9, None)).open
    assert opened.acked_offer == 0
    # The rank ends its transfer while the new connection opens: its server would refuse what it has not sent.
    uplink.ack_offer(2)
    uplink.ack(8)
    assert acked_offers(uplink._requests) == [0]
    uplink.offered(2)
    assert acked_offers(uplink._requests) == [2]
    uplink.disconnect()
    assert next(uplink.connect(9, None)).open.acked_offer == 2
