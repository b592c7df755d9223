"""Services: proto messages to domain calls and back, one file per service, and nothing else.

`hosting.guard` stands around all of them and turns errors into statuses.
"""
