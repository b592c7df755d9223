"""The server process: wiring, health, reflection, TLS, tokens, metrics, signals, drain, workers.

process     one server in this process, from start to signal
supervisor  several such processes on one address
app         what a server is made of
"""
