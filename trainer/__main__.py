"""`python -m trainer`, and what torchrun runs on every rank."""

import sys

from trainer.cli import main

sys.exit(main())
