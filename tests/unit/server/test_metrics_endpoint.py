"""Who connects to `/metrics` and stays silent keeps nothing of the server's for long."""

import socket
import urllib.request

from prometheus_client import CollectorRegistry, Gauge

from dataserver.hosting.metrics_endpoint import Impatient, MetricsEndpoint

LIMIT_S = 60.0


def test_a_silent_connection_is_hung_up_on_and_the_next_one_answered(monkeypatch, capsys) -> None:
    monkeypatch.setattr(Impatient, "timeout", 0.1)
    registry = CollectorRegistry()
    Gauge("rows", "Rows.", registry=registry).set(3)
    endpoint = MetricsEndpoint("127.0.0.1:0", registry)
    port = endpoint.start()
    try:
        for begun in (b"", b"GET /metr"):
            with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as silent:
                silent.sendall(begun)
                assert silent.recv(1) == b""
        monkeypatch.setattr(Impatient, "timeout", LIMIT_S)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as answer:
            assert b"rows 3.0" in answer.read()
    finally:
        endpoint.close()
    assert capsys.readouterr().err == ""
