"""`verifiers` environments, which ask and judge by themselves."""

from importlib.util import find_spec

from dataserver.errors import InvalidConfigError
from orchestrator.evals.config import EvalConfig
from orchestrator.evals.questions import Questions


def load_environment(config: EvalConfig) -> Questions:
    """The environment of `[evals.environment]`; raises `InvalidConfigError`."""
    if find_spec("verifiers") is None:
        raise InvalidConfigError(
            f"eval {config.name!r}: environments need the package verifiers, which is not installed: "
            "pip install 'dataserver[verifiers]', or give prompts and a scorer"
        )
    raise InvalidConfigError(f"eval {config.name!r}: not yet")
