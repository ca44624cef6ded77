"""`python -m tasks.runtime.torchrun ARGS`: `torchrun ARGS` that ends with the exit code of the process that failed.

torchrun itself ends with 1, so a batch system could not tell a wrong setting (2) from what may succeed when it is tried
again (75). Of several that failed, one whose code is not 75 counts: the others only lost it. A process that a signal ended gives 75, and so does a machine that lost the others. With `--max-restarts` the
processes that torchrun starts again meet in a store of their own: in the one that torchrun shares with them they reach
for the ports of those that died.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tasks.core.errors import TRANSIENT, may_pass

APART = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"


def main(args: Sequence[str]) -> int:
    """Runs torchrun, and returns the exit code."""
    os.environ.setdefault(APART, "1")
    from torch.distributed import DistError, run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    try:
        run.main(list(args))
    except ChildFailedError as e:
        codes = {rank: failure.exitcode for rank, failure in e.failures.items()}
        print(f"torchrun: exit codes of processes that failed: {codes}", file=sys.stderr, flush=True)
        code = next((c for c in codes.values() if not may_pass(c)), TRANSIENT)
        return code if code > 0 else 128 - code
    except SignalException as e:
        return 128 + int(e.sigval)
    except (DistError, RendezvousError) as e:  # another machine is gone
        print(f"torchrun: lost another machine: {str(e).splitlines()[0]}", file=sys.stderr, flush=True)
        return TRANSIENT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
