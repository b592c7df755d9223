"""What every process of ours that answers calls has in common.

guard             errors become statuses; what is under way is known
credentials       TLS for the connection, a bearer token for every call
listen            gRPC's options of a server, and its port
metrics_endpoint  `/metrics` for Prometheus
logs              log lines for people or for programs
pages             tokens of pages
signals           the first signal drains, the second ends
open_files        what is told when no file can be opened
"""
