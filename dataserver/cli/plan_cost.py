"""`dataserver plan cost`, and how the other offline commands are told what a sample costs."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from dataserver.errors import InvalidConfigError

if TYPE_CHECKING:
    from dataserver.packing.cost import CostModel

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_cost_verb(verbs: "Subparsers") -> None:
    """Add `plan cost`."""
    purpose = "print the two coefficients of a model's cost, for cost_linear and cost_quadratic of a batch spec"
    parser = verbs.add_parser("cost", help=purpose, description=purpose)
    parser.add_argument("--model", type=Path, required=True, metavar="CONFIG", help="config.json, or its directory")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.set_defaults(handler=_cost)


def add_cost_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--model` and `--cost`, of which one may be given."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--model", type=Path, metavar="CONFIG", help="config.json of the model that is trained, or its directory"
    )
    group.add_argument(
        "--cost", type=_coefficients, metavar="LINEAR,QUADRATIC", help="cost of a token and of a squared token"
    )


def cost_from(arguments: argparse.Namespace) -> "CostModel":
    """The cost that the arguments name; without a model every token costs the same."""
    from dataserver.packing.cost import CostModel

    if arguments.model is not None:
        return model_cost(arguments.model)
    return CostModel(*(arguments.cost or (1, 0)))


def model_cost(path: Path) -> "CostModel":
    """The cost of the model that `path`, a `config.json` or its directory, describes.

    Raises `InvalidConfigError` for a file that cannot be read, `InvalidSpecError` for what it lacks.
    """
    from dataserver.packing.model_cost import cost_of_model

    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text())
    except OSError as error:
        raise InvalidConfigError(f"cannot read the model's configuration {file}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidConfigError(f"the model's configuration {file} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise InvalidConfigError(f"the model's configuration {file} holds no JSON object")
    return cost_of_model(config)


def _cost(arguments: argparse.Namespace) -> int:
    cost = model_cost(arguments.model)
    if arguments.json:
        print(json.dumps({"cost_linear": cost.linear, "cost_quadratic": cost.quadratic}))
    else:
        print(f"cost_linear = {cost.linear}\ncost_quadratic = {cost.quadratic}")
    return 0


def _coefficients(text: str) -> tuple[int, int]:
    linear, comma, quadratic = text.partition(",")
    if not (comma and linear.isdecimal() and quadratic.isdecimal()) or int(linear) + int(quadratic) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not LINEAR,QUADRATIC: two whole numbers, not both 0")
    return int(linear), int(quadratic)
