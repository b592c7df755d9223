"""An orchestrator's configuration; `config_file` reads it.

    [run]        the run that is evaluated
    [data]       how the data server is reached
    [trainer]    how the trainer is reached
    [[engines]]  the vLLM servers that serve the policy
    [weights]    how a version's weights reach them
    [pool]       how engines and the run are watched over
    [serve]      where trainers and people reach the orchestrator
    [[evals]]    what is asked of the policy, and when
    [results]    where results are kept
    [metrics]    where figures go

The order of samples, the model and the optimizer are the trainer's: none of them stands here.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from dataserver.listening import Address, CalleeConfig, ListeningConfig, OptionalAddress
from dataserver.run_spec import RunName
from dataserver.sinks import MetricsConfig
from orchestrator.engines.interface import Transport
from orchestrator.evals.config import EVAL_NAME, EvalConfig, Section, check_evals
from orchestrator.results.table import DEFAULT_DATABASE

# What a trainer's [run] holds besides the name.
TRAIN_FIELDS = ("order", "batch", "sources")


class RunConfig(Section):
    """`[run]`: the run that is evaluated."""

    name: RunName
    """Name of the run on the data server. The trainer creates it."""

    @model_validator(mode="before")
    @classmethod
    def _no_train_sources(cls, fields: Any) -> Any:  # noqa: ANN401 - whatever stands there
        given = [name for name in TRAIN_FIELDS if isinstance(fields, dict) and name in fields]
        if given:
            raise ValueError(
                f"{' and '.join(f'run.{name}' for name in given)} says what is trained on, which the orchestrator has "
                "no part in: leave it in the trainer's configuration, and give run.name alone"
            )
        return fields


def _engine_name(name: str) -> str:
    if not EVAL_NAME.fullmatch(name):
        raise ValueError(
            f"engine name {name!r}: use letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 64"
        )
    return name


def _url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.query or parts.fragment:
        raise ValueError(f"url {url!r}: give http://HOST:PORT of a vLLM server")
    return url.rstrip("/")


class EngineConfig(Section):
    """`[[engines]]`: one vLLM server, however many workers it has."""

    name: Annotated[str, AfterValidator(_engine_name)]
    """Its name in results, logs and metrics."""
    url: Annotated[str, AfterValidator(_url)]
    """`http://HOST:PORT`."""
    restart: tuple[str, ...] = ()
    """Command that ends the server's process and starts it anew: it is run where an engine may hold a mix of two
    versions. It ends when the server is started; a server that it leaves running itself needs its output sent
    somewhere. Without a command, such an engine gets no work until somebody restarts it; the log says so."""
    restart_timeout_s: float = Field(default=600, gt=0)
    """How long a restart may take until the engine is healthy."""
    generate_timeout_s: float = Field(default=1800, gt=0)
    """How long one answer may take, the time that the engine is paused for included."""


class TransfersConfig(Section):
    """`[weights]`: how a version's weights reach the engines."""

    transport: Transport = Transport.FILESYSTEM
    """`filesystem`, `gloo` or `nccl`; the trainer's `weights.transport` must be the same."""
    wait_for_answers: bool = False
    """Wait for answers that are being made instead of freezing them, so that no answer is of two versions. Those that
    take longer than `prepare_timeout_s` make the transfer be skipped."""
    prepare_timeout_s: float = Field(default=30, gt=0)
    """How long engines may take to get ready: to compare what is announced, and to pause. The trainer waits meanwhile,
    but for the pause of engines that load files, which comes after the last byte was written."""
    transfer_timeout_s: float = Field(default=600, gt=0)
    """How long sending may take: a transfer that is not committed then is given up."""
    finish_timeout_s: float = Field(default=240, gt=0)
    """How long an engine may take, after the last byte was sent, until it serves the version: with files, to load them
    all; the trainer's `weights.commit_s` covers this and `prepare_timeout_s`."""


class PoolConfig(Section):
    """`[pool]`: how engines and the run are watched over."""

    health_every_s: float = Field(default=2, gt=0)
    """Time between two looks at an engine."""
    lease_s: float = Field(default=15, ge=1, le=3600)
    """How long the orchestrator's lease and its holds live without renewal. After a crash the next orchestrator waits
    so long, and steps ask for syncs so long."""


class ServeConfig(ListeningConfig):
    """`[serve]`: where trainers and people reach the orchestrator."""

    listen: Address = "127.0.0.1:50061"
    """Address of the gRPC services. Port 0 takes a free one, which is printed."""
    metrics_listen: OptionalAddress = "127.0.0.1:9465"
    """Address of Prometheus' `/metrics`. Empty: none."""
    advertise: OptionalAddress = ""
    """Address that trainers are told. Empty: the one that is listened on, which must then be no wildcard."""
    drain_s: float = Field(default=20.0, ge=0)
    """Seconds that a transfer under way gets to end after SIGTERM. Evals under way end at once, and are due again."""

    @model_validator(mode="after")
    def _can_be_called(self) -> Self:
        if not self.advertise and self.listen.rpartition(":")[0] in {"0.0.0.0", "[::]"}:  # noqa: S104 - refused
            raise ValueError(
                f"listen = {self.listen!r} is no address that a trainer could call: set serve.advertise to HOST:PORT "
                "of this machine"
            )
        return self


class ResultsConfig(Section):
    """`[results]`: where results of evals are kept."""

    database: str = Field(default=DEFAULT_DATABASE, min_length=1)
    """`sqlite:///PATH`, on a local disk, or `postgresql://USER@HOST/DATABASE`, the ledger's own perhaps."""


class OrchestratorConfig(Section):
    """A whole orchestrator."""

    run: RunConfig
    """The run that is evaluated."""
    data: CalleeConfig = CalleeConfig()
    """How the data server is reached."""
    trainer: CalleeConfig = CalleeConfig()
    """How the trainer's rank 0 is reached, to end a transfer that it waits in."""
    engines: tuple[EngineConfig, ...] = ()
    """The vLLM servers that serve the policy."""
    weights: TransfersConfig = TransfersConfig()
    """How a version's weights reach them."""
    pool: PoolConfig = PoolConfig()
    """How engines and the run are watched over."""
    serve: ServeConfig = ServeConfig()
    """Where trainers and people reach the orchestrator."""
    evals: tuple[EvalConfig, ...] = ()
    """What is asked of the policy, and when."""
    results: ResultsConfig = ResultsConfig()
    """Where results are kept."""
    metrics: MetricsConfig = MetricsConfig()
    """Where figures go."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_evals(self.evals)
        _refuse_twice("engines of the same name", (engine.name for engine in self.engines))
        _refuse_twice("engines of the same url", (engine.url for engine in self.engines))
        if self.evals and not self.engines:
            names = ", ".join(each.name for each in self.evals)
            raise ValueError(f"evals without an engine: {names}; add [[engines]] with name and url of a vLLM server")
        return self


def _refuse_twice(what: str, values: Iterable[str]) -> None:
    twice = sorted(value for value, count in Counter(values).items() if count > 1)
    if twice:
        raise ValueError(f"{what}: {', '.join(twice)}; change or remove all but one")
