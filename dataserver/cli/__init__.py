"""The command line `dataserver`: one module for each command, and what they share."""
