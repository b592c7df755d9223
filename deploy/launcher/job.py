"""A job file: which commands make up the job.

    [server]            the data server
    [trainer]           torchrun; its end is the job's end
    [engines.NAME]      an engine each
    [orchestrator]

Commands run in the directory of the file.
"""

import shlex
import string
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]

SINGLE = ("server", "trainer", "orchestrator")
"""Processes of which there is one; engines have names of their own."""


class JobError(Exception):
    """A job that cannot be started as it is written; the message says where and why."""


class Section(BaseModel):
    """Base of the sections: frozen, and nothing unknown passes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class ProcessConfig(Section):
    """`[server]`, `[trainer]`, `[orchestrator]`, `[engines.NAME]`: one process."""

    command: str = Field(min_length=1)
    """The command, in words as a shell splits them; `$NAME` is taken from the environment. No shell runs it."""
    environment: dict[str, str] = {}
    """Variables that this process gets besides the launcher's."""

    def words(self, environment: Mapping[str, str]) -> list[str]:
        """The command's words; `JobError` for a variable that is not set, a quote that is not closed, or no program."""
        try:
            words = [string.Template(word).substitute(environment) for word in shlex.split(self.command)]
        except KeyError as error:
            raise JobError(f"{self.command!r}: the environment variable {error.args[0]} is not set") from error
        except ValueError as error:
            raise JobError(f"{self.command!r}: {error}") from error
        if not words or not words[0]:
            raise JobError(f"{self.command!r}: it names no program; where nothing is to be started, leave it out")
        return words


class JobConfig(Section):
    """A whole job."""

    trainer: ProcessConfig
    """What the job is for. When it fails, everything ends; torchrun's `--max-restarts` says when it has failed."""
    server: ProcessConfig | None = None
    """The data server; leave it out where it runs elsewhere."""
    orchestrator: ProcessConfig | None = None
    """The orchestrator; it ends by itself once the trainer has ended and its last evals are done."""
    engines: dict[Name, ProcessConfig] = {}
    """Engines by name."""
    restarts: int = Field(default=10, ge=0)
    """How often in a row a process other than the trainer may crash; then it stays down and the job goes on."""
    backoff_s: float = Field(default=1.0, gt=0, le=60)
    """Wait before the first restart; it doubles with every further crash in a row, up to a minute."""
    steady_s: float = Field(default=60.0, gt=0)
    """A process that lived so long has not crashed in a row with what was before."""
    drain_s: float = Field(default=3600.0, gt=0)
    """How long the orchestrator may go on after the trainer has ended well."""
    stop_s: float = Field(default=10.0, gt=0)
    """How long a process may take to end when it is told to, before it is killed."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        if taken := sorted(set(SINGLE) & set(self.engines)):
            raise ValueError(f"an engine cannot be named {taken[0]!r}: that is the name of another process of the job")
        return self

    @property
    def processes(self) -> dict[str, ProcessConfig]:
        """All by name, in the order in which they are started."""
        first = {} if self.server is None else {"server": self.server}
        last = {} if self.orchestrator is None else {"orchestrator": self.orchestrator}
        return first | self.engines | {"trainer": self.trainer} | last


def load_job(path: Path) -> JobConfig:
    """Read a job file. Raises `JobError` with every field that is wrong."""
    try:
        return JobConfig.model_validate(tomllib.loads(path.read_text()))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise JobError(f"cannot read the job {path}: {error}") from error
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, fault['loc'])) or 'job'}: {fault['msg']}" for fault in error.errors())
        raise JobError(f"{path}: {'; '.join(faults)}") from error
