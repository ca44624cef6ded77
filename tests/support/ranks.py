"""Several processes that meet as they do when a stage learns with `learners`, for tests: forked from a server that has
imported everything and computed nothing."""

import multiprocessing
import traceback
from pathlib import Path

from training.learner.world import ONE, join

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tasks.stages.rl", "tasks.stages.prefer"])  # what is on the path of any process


def together(size, work, *args, folder: Path, shards=1):
    """What `work(world, *args)` returns in each of `size` processes, by rank; the text of what it raised where it did.
    One process is this one."""
    if size == 1:
        return [work(ONE, *args)]
    meet = folder / f"meet-{len(list(folder.iterdir()))}"
    pipes, children = [], []
    for rank in range(size):
        mine, theirs = CONTEXT.Pipe(duplex=False)
        child = CONTEXT.Process(
            target=_one, args=(theirs, rank, size, shards, f"file://{meet}", work, args), daemon=True
        )
        child.start()
        theirs.close()
        pipes.append(mine)
        children.append(child)
    try:
        return [pipe.recv() if pipe.poll(900) else None for pipe in pipes]
    finally:
        for child in children:
            child.kill()
            child.join()


def _one(pipe, rank, size, shards, meet, work, args):
    import torch

    torch.set_num_threads(1)
    try:
        pipe.send(work(join(rank, size, meet, shards=shards), *args))
    except BaseException as e:
        traceback.print_exc()
        pipe.send(f"{type(e).__name__}: {e}")
