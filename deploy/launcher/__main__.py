"""`python -m deploy.launcher`."""

import sys

from deploy.launcher.cli import main

sys.exit(main())
