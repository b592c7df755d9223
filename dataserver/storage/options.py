"""Options of a storage, as a configuration gives them."""

from collections.abc import Collection, Mapping

from dataserver.errors import InvalidConfigError


def refuse_options(url: str, options: Mapping[str, str], known: Collection[str]) -> None:
    """Raise `InvalidConfigError` for the names in `options` that mean nothing to a storage of this kind."""
    unknown = sorted(options.keys() - set(known))
    if unknown:
        understood = ", ".join(known) or "none"
        raise InvalidConfigError(
            f"'{url}': unknown options {', '.join(unknown)}; understood: {understood}. Credentials are no options: "
            "they come from the environment."
        )
