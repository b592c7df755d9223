"""What tests of running evals share: engines that say what a test wants, and a run that lands versions on them."""
