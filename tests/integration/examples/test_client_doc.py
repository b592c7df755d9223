"""The code in docs/client.md runs as it stands."""

import io
from contextlib import redirect_stdout
from pathlib import Path

from dataserver.client import DataClient
from dataserver.testing import running_server, write_store

DOCUMENT = Path(__file__).parents[3] / "docs" / "client.md"
LENGTHS = [5, 64, 17, 30] * 10


def test_the_lines_on_evaluating_read_the_whole_store(tmp_path):
    code = DOCUMENT.read_text().split("```python\n")[2].split("```")[0]
    served = running_server({"chat": write_store(tmp_path / "chat", lengths=LENGTHS)})
    with served as server, redirect_stdout(io.StringIO()) as out:
        exec(code.replace("127.0.0.1:50051", server.endpoint), {})  # noqa: S102  # the document's own code
    assert int(out.getvalue()) == sum(length - length // 3 for length in LENGTHS)


def test_the_ten_lines_of_the_document_consume_an_epoch(tmp_path):
    code = DOCUMENT.read_text().split("```python\n")[1].split("```")[0]
    assert code.count("\n") <= 16
    with running_server({"chat": write_store(tmp_path / "chat", lengths=LENGTHS)}) as server:
        with redirect_stdout(io.StringIO()) as out:
            exec(code.replace("127.0.0.1:50051", server.endpoint), {})  # noqa: S102  # the document's own code
        with DataClient(server.endpoint) as client:
            run = client.get_run("demo")
    assert run.ended
    assert run.consumed_step == run.sealed_step > 1
    assert out.getvalue()
