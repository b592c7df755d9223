"""Runs a whole job on one machine: data server, trainer, engines and orchestrator, under one rule of who ends whom.

    launcher JOB.toml            start all, restart what crashes, end with the trainer's exit code
    launcher restart NAME        from within the job: kill that process and start it afresh

    launcher ──pipe──> warden ──> data server
             ──pipe──> warden ──> torchrun ──> ranks
             ──pipe──> warden ──> engine ──> workers
             ──pipe──> warden ──> orchestrator

What it starts are commands; it knows none of the programs. `rule` says what follows from an end, `warden` sees to it
that no descendant outlives its process or the launcher.
"""
