"""Evaluations of the policy while it trains.

config       what is asked, how it is judged, and when
schedule     which evals are due, a pure function
director     has them begin, run and end as the schedule says
book         how each of them stands, for whoever asks
outcome      how one ended: put together, written down, told
sampling     the answers of one eval, over all engines, whatever fails on the way
questions    one answer: a prompt, an engine, a score
loading      from a configuration to questions
prompts, prompt_questions, scorers, environments    what is asked, and how it is judged
figures      what the scores come to
history      how a run was moved
"""
