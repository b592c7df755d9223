"""How a version's weights get from the trainer into the engines.

values       what trainers ask and are answered
party        one engine in one transfer: the order of calls, and the way out of each
transfer     one transfer, from its prepare to its end: the state machine
coordinator  which transfers take place; duplicated and late calls
"""
