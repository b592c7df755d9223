"""The data server: owns stores, the order in which they are consumed, and the cursors.

    index space    sampling -> packing -> planning      pure arithmetic on row numbers and lengths
    byte space     stores -> batching -> wire           reads rows, builds micro-batch buffers
    state          ledger                               runs, attempts, seals, cursors; durable
    between them   streaming -> services -> server      who gets what, when

Trainers use `dataserver.client` and nothing else from here.
"""
