"""TRL's trainers, imported when a test first uses one: every worker collects every file, and TRL takes seconds to load."""

from importlib import import_module

PLACES = {"GMPOTrainer": "trl.experimental.gmpo", "CPOTrainer": "trl.experimental.cpo"}
PLACES |= {"ORPOTrainer": "trl.experimental.orpo"}


def trl_module(trainer: str):
    """The module of a trainer by the name of its class."""
    name = trainer.removesuffix("Trainer").lower()
    return import_module(f"{PLACES.get(trainer, 'trl.trainer')}.{name}_trainer")


def trl_class(trainer: str) -> type:
    return getattr(trl_module(trainer), trainer)
