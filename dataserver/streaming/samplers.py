"""Custom samplers: Python entry points of the group `dataserver.samplers` that the server's operator installed.

[project.entry-points."dataserver.samplers"]
curriculum = "my_package.orders:curriculum"
"""

from importlib.metadata import entry_points

from dataserver.errors import InvalidSpecError
from dataserver.run_spec import OrderSpec
from dataserver.sampling.custom import CustomSampler

GROUP = "dataserver.samplers"


def sampler_of(order: OrderSpec) -> CustomSampler | None:
    """The sampler that `order` names; None where it names none.

    Raises `InvalidSpecError` for one that is not installed, cannot be imported, or is installed twice.
    """
    if not order.sampler:
        return None
    installed = entry_points(group=GROUP)
    found = [entry for entry in installed if entry.name == order.sampler]
    if len(found) != 1:
        names = ", ".join(sorted(set(installed.names))) or "none"
        raise InvalidSpecError(
            f"sampler {order.sampler!r} is installed {len(found)} times on this server, which has {names}: install a "
            f"package with this entry point in the group {GROUP}, the same version on every server",
            field="sampler",
        )
    try:
        function = found[0].load()
    except Exception as error:
        raise InvalidSpecError(
            f"sampler {order.sampler!r} = {found[0].value} cannot be imported: {error!r}", field="sampler"
        ) from error
    distribution = found[0].dist
    identity = f"{distribution.name} {distribution.version}" if distribution else found[0].value
    return CustomSampler(name=order.sampler, identity=identity, function=function)
