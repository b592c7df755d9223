"""The reasons on the wire and the tree of errors are one list."""

import grpc

from dataserver import errors
from dataserver.v1 import error_pb2

PREFIX = "ERROR_REASON_"


def subclasses(of: type[errors.DataServerError]) -> set[type[errors.DataServerError]]:
    return {child for direct in of.__subclasses__() for child in {direct} | subclasses(direct)}


def test_every_reason_on_the_wire_has_a_class_and_the_other_way_round() -> None:
    on_the_wire = {name.removeprefix(PREFIX) for name, _ in error_pb2.ErrorReason.items()} - {"UNSPECIFIED"}
    assert {reason.name for reason in errors.REASONS} == on_the_wire


def test_every_class_that_can_be_raised_has_one_reason() -> None:
    named = [reason.error for reason in errors.REASONS]
    assert len(set(named)) == len(named)
    assert subclasses(errors.DataServerError) - set(named) == {errors.DamagedError}, "only a grouping has no reason"


def test_every_status_is_one_of_grpc() -> None:
    for reason in errors.REASONS:
        assert reason.status in grpc.StatusCode.__members__, reason


def test_only_unavailable_is_retried_so_nothing_else_may_carry_its_status() -> None:
    retried = {reason.error for reason in errors.REASONS if reason.status == "UNAVAILABLE"}
    assert retried == {errors.UnavailableError} | subclasses(errors.UnavailableError)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = errors.__doc__ or ""
    for error in subclasses(errors.DataServerError):
        assert error.__name__ in drawn, error
