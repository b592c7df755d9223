"""The digest of a plan changes with everything that reaches a rank, and with nothing else."""

import hashlib
import struct
from dataclasses import replace

import numpy as np
import pytest

from dataserver.cursor import Cursor
from dataserver.planning.digest import plan_digest
from dataserver.planning.fingerprint import PLANNER_VERSION
from dataserver.run_spec import BatchSpec
from dataserver.sampling.order import Samples


def indices(*values):
    return np.array(values, dtype=np.int64)


def batch(**more):
    return BatchSpec(**{"step_samples": 1, "micro_batch_tokens": 64, "alignment": 8} | more)


BASE = {
    "begin": Cursor(order_fingerprint="order"),
    "end": Cursor(order_fingerprint="order", step=1, position=3),
    "samples": Samples(np.array([0, 1, 0], dtype=np.int32), indices(5, 6, 7)),
    "lengths": indices(10, 20, 30),
    "rounds": ((indices(0), indices(1)), (indices(2), indices())),
    "target_count": 40,
    "batch": batch(),
    "last": False,
}


@pytest.mark.parametrize(
    "change",
    [
        {"begin": Cursor(order_fingerprint="other")},
        {"end": replace(BASE["end"], position=4)},
        {"samples": Samples(np.array([0, 0, 1], dtype=np.int32), indices(5, 6, 7))},
        {"samples": Samples(np.array([0, 1, 0], dtype=np.int32), indices(5, 6, 8))},
        {"lengths": indices(10, 20, 31)},
        {"rounds": ((indices(1), indices(0)), (indices(2), indices()))},
        {"rounds": ((indices(0), indices(1)), (indices(), indices(2)))},
        {"rounds": ((indices(0, 1), indices()), (indices(2), indices()))},
        {"rounds": ((indices(0), indices(1), indices(2), indices()),)},
        {"target_count": 41},
        {"batch": batch(micro_batch_tokens=65)},
        {"batch": batch(alignment=4)},
        {"batch": batch(pad_to=32)},
        {"last": True},
    ],
)
def test_every_part_of_a_plan_counts(change):
    assert plan_digest(**BASE | change) != plan_digest(**BASE)


def test_a_digest_depends_on_values_and_not_on_their_memory():
    same = {
        "samples": Samples(np.array([0, 1, 0, 9], dtype=np.int32)[:3], np.array([5, 0, 6, 0, 7])[::2]),
        "lengths": np.array([10, 20, 30], dtype=np.int32),
    }
    assert plan_digest(**BASE | same) == plan_digest(**BASE)


def test_the_layout_is_the_documented_one():
    def text(cursor):
        data = cursor.to_json().encode()
        return struct.pack("<q", len(data)) + data

    parts = [
        struct.pack("<8q", PLANNER_VERSION, 1, 2, 64, 8, 0, 0, 40),
        text(BASE["begin"]),
        text(BASE["end"]),
        struct.pack("<q", 3),
        struct.pack("<3i", 0, 1, 0),
        struct.pack("<3q", 5, 6, 7),
        struct.pack("<3q", 10, 20, 30),
        struct.pack("<q", 2),
        struct.pack("<4q", 1, 1, 1, 0),
        struct.pack("<3q", 0, 1, 2),
    ]
    expected = hashlib.blake2b(b"".join(parts), digest_size=16, person=b"ds plan").hexdigest()
    assert plan_digest(**BASE) == expected


def test_plans_carry_the_digest_of_what_they_hold(drive, hashed_table):
    spec = BatchSpec(step_tokens=5000, micro_batch_tokens=1024, alignment=8, max_steps=1)
    plan = drive(hashed_table(200)).step(spec, 3)
    assert plan.last
    assert plan.digest == plan_digest(
        begin=plan.begin,
        end=plan.end,
        samples=plan.samples,
        lengths=plan.lengths,
        rounds=plan.rounds,
        target_count=len(plan.samples),
        batch=spec,
        last=True,
    )
