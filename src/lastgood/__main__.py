"""`python -m lastgood`: the command line where no script is on the path."""

import sys

from lastgood.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
