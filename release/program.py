"""The start of the one-file program: `extender`, or `extender explain` if it is called kubectl-podseat."""

import sys
from pathlib import Path

from extender.cli.start import kubectl_podseat, main

if Path(sys.argv[0]).name.startswith("kubectl-"):
    kubectl_podseat()
else:
    main()
