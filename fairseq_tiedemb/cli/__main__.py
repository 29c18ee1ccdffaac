"""`python -m fairseq_tiedemb.cli`: `fairseq-tiedemb` from a checkout that is not installed."""

import sys

from fairseq_tiedemb.cli import main

sys.exit(main())
