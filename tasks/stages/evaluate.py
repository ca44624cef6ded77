"""The stage `evaluate`: every model plays the held-out questions; the last model plays them again with a search tool
that finds nothing."""

# pyright: reportInvalidTypeForm=false
# (a knob that is a piece is annotated with its kind, `Piece("advantage")`, which the plan reads)

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pandera.pandas as pa

from synth.pictures import HELD
from synth.testsets.contamination import Contamination
from synth.types import Demonstration, Message, PreferencePair, Problem, Sampling, Scored, digest
from synth.verify import drawn, extract_answer
from tasks.core.errors import UserError, nearest
from tasks.evaluation import decoding as by_decoders
from tasks.evaluation import merging
from tasks.evaluation import testsets as test_sets
from tasks.evaluation.held_out_rows import held_out_rows
from tasks.evaluation.measure import OUTCOMES, correct, measure, needed, plain
from tasks.evaluation.outcome import outcome
from tasks.knowledge import knowledge
from tasks.knowledge.search_tool import Blank
from tasks.models import judge as judges
from tasks.models import tools
from tasks.models.team import cast, load_team, roles_of
from tasks.planning.pieces import Piece, Pieces
from tasks.planning.settings import EvaluationSampling
from tasks.runtime.models import MODELS
from tasks.runtime.stage import Stage
from tasks.storage import pictures, tables
from tasks.storage.finished import Finished
from tasks.tracking import episodes
from training.model.model import load_model
from training.model.render import Renderer
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler
from training.types import Rollout

PROVIDES = {"reward_model", "activations", "reference"}
ONLY_WITH = {
    "tasks.evaluation.benchmarks": "sets",
    "tasks.evaluation.judging": "sets",
}  # imported only where this knob is set: read by the plan
RENAMED = {"overlap": "contamination: ...", "wave": "batch_size: ..."}  # former knobs -> what to write now
WATCHED = (
    "pass@1",
    "pass@8",
    "majority@8",
    "ece",
    "calls",
    "tokens",
)  # metrics of each model shown in MLflow; all others are in metrics.json
SCORES = pa.DataFrameSchema(
    {
        "run": tables.text(empty=False),
        "model": tables.text(among=tuple(MODELS)),
        "blanked": pa.Column(bool),
        "problem": tables.text(empty=False),
        "sample": tables.number(0, whole=True),
        "env": tables.text(empty=False),
        "family": tables.text(empty=False),
        "hops": tables.number(0, whole=True),
        "score": tables.number(nullable=True),
        "outcome": tables.text(among=OUTCOMES),
        "calls": tables.number(0, whole=True),
        "turns": tables.number(1, whole=True),
        "tokens": tables.number(0, whole=True),
        "temperature": tables.number(0),
        "top_p": tables.number(0),
        "said": tables.text(),
        "reference": tables.text(),
        "text": tables.text(),
        "confidence": tables.number(0, nullable=True),
        "reward": tables.number(nullable=True),
        "max_turn_tokens": tables.number(1, whole=True),
        "search_top_k": tables.number(1, whole=True),
    },
    name="scores",
    unique=["run", "problem", "sample"],
)


@dataclass(frozen=True)
class Run:
    """One model, or a merge of models, on one list of problems with one set of tools, with or without a decoder."""

    name: str
    model: str
    problems: Sequence[Problem]
    samples: int
    tools: Mapping[str, Callable[..., str]]
    blanked: bool = False
    decoder: Any = None
    merge: Any = None


def evaluate(
    stage: Stage,
    *,
    models: list = ["base", "sft", "prefer", "rl"],
    against: str = "sft",
    questions: int = 300,
    samples: int = 8,
    per_family: int = 20,
    family_samples: int = 4,
    blanked_samples: int = 2,
    sampling: EvaluationSampling = EvaluationSampling(),
    envs: Pieces("env") = [{"piece": "search"}, {"piece": "single"}],
    metrics: Pieces("metric") = [
        {"piece": "pass_at_k", "ks": [1, 8]},
        {"piece": "majority_at_k", "ks": [8]},
        {"piece": "answer_overlap"},
        {"piece": "cost_per_right"},
        {"piece": "calibration"},
        {"piece": "diversity"},
        {"piece": "format_and_refusal"},
        {"piece": "length_bias"},
    ],
    sets: list = [],
    contamination: str = "refuse",
    judge: dict = {},
    generation: Piece("generation") = None,
    decoders: Pieces("decode") = [],
    decoder_samples: int = 1,
    decoder_tokens: int = 0,
    merges: Pieces("merge") = [],
    merge_base: str = "sft",
    traces: int = 48,
    max_unscorable: float = 0.02,
    batch_size: int = 256,
    device: str = "cpu",
    dtype: str = "float32",
) -> None:
    """Measures models on held-out problems.

    Args:
        models: models to measure: base, sft, prefer, rl
        against: the model that the others are compared with
        questions: test questions
        samples: rollouts of each question per model
        per_family: test problems of each verifiable family
        family_samples: rollouts of each of them
        blanked_samples: rollouts of each question whose search results are blanked
        sampling: how conversations are sampled
        envs: environments that problems are played in, with their knobs
        metrics: metrics of the scored samples
        sets: test sets of your own: problems that are played (tasks/evaluation/testsets.py has the keys), choices, and
            tasks of lm-evaluation-harness and Inspect (tasks/evaluation/benchmarks.py), and those that measure the
            reward model or the judge (tasks/evaluation/judging.py)
        contamination: what happens to a test row that is in the training data: "refuse" stops and names it, "drop"
            leaves it out and counts it
        judge: a model that says whether a model's answer or that of `against` is better; it must withstand the attacks
            first (tasks/models/judge.py has the keys)
        generation: how the models write a turn, if not one token after another: that of the knob of the same name of
            sft and rl; base stays as it is (docs/decoders.md)
        decoders: decoders with which the last of `models` is also measured, on the same questions (docs/decoders.md)
        decoder_samples: conversations of each question per decoder
        decoder_tokens: forward tokens, of all models together, that a decoder may spend on one turn; 0 sets no bound
        merges: methods that merge those of `models` that were trained from `merge_base` into one; each merge is
            measured on the same questions, with its gains and losses (docs/merging.md)
        merge_base: the model that the others were trained from: base or sft
        traces: number of conversations that MLflow shows turn by turn
        max_unscorable: largest share of rollouts without a score; above it the stage stops, because the numbers would
            be biased
        batch_size: conversations that are sampled at once
        device: device of the models: cpu, cuda, or cuda:0
        dtype: type of the weights: float32 or bfloat16
    """
    models = [m for m in models if m not in MODELS or stage.reads(MODELS[m][0])]
    _check(models, against, contamination)
    wanted = needed(metrics)
    tests = _test_problems(stage, questions, per_family, sets, contamination)
    hosts = tools.hosts(envs)
    search = tools.bound(knowledge.search(stage, **sampling.tool()), hosts.values())
    runs = _runs(models, tests, samples, family_samples, blanked_samples, search)
    by_decoder = _decoded(models[-1], tests, decoders, decoder_samples, search)
    runs += by_decoder
    by_merge = _merged(models, merge_base, tests, merges, samples, search)
    runs += by_merge
    referee = judges.trusted(stage, judge, tests.families or tests.questions) if judge else None
    scorer = _reward_model(stage, dtype, device) if "rewards" in wanted else None
    judged_by = scorer
    if judged_by is None and any("reward_model" in d.needs for d in decoders) and stage.reads("reward"):
        judged_by = _reward_model(stage, dtype, device)
    players = _Players(
        stage=stage,
        envs=hosts,
        sampling=sampling.turn(),
        max_tokens=sampling.max_tokens,
        batch_size=batch_size,
        device=device,
        dtype=dtype,
        rewards=judged_by.of_ids if judged_by else None,
        decoder_tokens=decoder_tokens,
        merge_base=merge_base,
        way=generation() if generation is not None else None,
        team=roles_of(stage) if "rl" in models else {},
        trained=tuple(m for m in models if m not in ("base", merge_base)),
        before=stage.input(*MODELS["sft"]) if stage.reads("sft") else None,
    )
    of_rows = held_out_rows(stage, models, against, max_tokens=sampling.max_tokens, device=device, dtype=dtype)
    if not runs and not of_rows["models"] and not tests.benchmarks and not tests.judging:
        raise UserError(
            "evaluate: nothing is held out to measure on: no problem, pair or conversation has the split test"
        )
    by_model = sorted(runs, key=lambda r: models.index(r.model))
    played: dict[str, list[dict[str, Any]]] = {run.name: [] for run in runs}
    with stage.progress(sum(len(r.problems) * r.samples for r in runs), "rollouts") as bar:
        # Decoders first: one that refuses its knobs, its pairs or its budget does so before the rest is played.
        for run in sorted(by_model, key=lambda r: r.decoder is None):
            for part in resumable(
                stage.finished(run.name),
                run.problems,
                max(1, batch_size // run.samples),
                partial(players.play, run),
                scorer,
                players.features if "features" in wanted else None,
            ):
                played[run.name] += [
                    {"run": run.name, "model": run.model, "blanked": run.blanked, **row} for row in part
                ]
                bar.update(len(part), model=run.name)
    rows = [row for run in by_model for row in played[run.name]]

    missing = _unscorable(rows, max_unscorable)
    decoding = {name: getattr(sampling, name) for name in ("temperature", "top_p", "max_turn_tokens", "search_top_k")}
    _write_episodes(stage.out / "episodes.jsonl", rows)
    frame = _scores(rows, decoding) if rows else pd.DataFrame()
    if rows:
        frame.to_parquet(stage.out / "scores.parquet", compression="zstd", index=False)
    if "features" in wanted:
        frame["features"] = [r["features"] for r in rows]  # read by metrics, and too large to store
    measures = measure(frame, models, against, metrics, [s.name for s in tests.own] if rows else [])
    if of_rows["models"]:
        measures["rows"] = plain(of_rows)
        for name, values in measures["rows"]["models"].items():
            measures["models"][name] = measures["models"].get(name, {}) | values
    if tests.benchmarks:
        _benchmarked(stage, measures, tests, models, against, players)
    cards: dict[str, Any] = {}
    if tests.judging:
        from tasks.evaluation.judging import judged

        reward_model = lambda: judged_by or _reward_model(stage, dtype, device)  # noqa: E731
        measures["judging"], cards = judged(
            tests.judging, tests.leaked, reward_model, referee.judge if referee else None
        )
    if rows and any("pass@1" not in values for values in measures["models"].values()):
        raise UserError(
            "evaluate: no metric gives pass@1, which the report shows: keep {piece: pass_at_k, ks: [1, ...]} among evaluate.metrics"
        )
    verdicts = _judged(stage, referee, rows, runs, models, against) if referee else None
    if verdicts:
        measures["judged"] = plain(verdicts.rates)
    if by_decoder:
        labels = {r.name: by_decoders.label(r.decoder) for r in by_decoder}
        measures["decoders"] = by_decoders.measured(frame, rows, labels, metrics)
    if by_merge:
        names = {r.name: merging.label(r.merge) for r in by_merge}
        measures["merges"] = merging.measured(frame, names, models, metrics)
    (stage.out / "metrics.json").write_text(json.dumps(measures, indent=1) + "\n", encoding="utf-8")
    stage.card(
        {
            "rollouts": len(rows),
            "unscorable": missing,
            "questions": len(tests.questions),
            "problems": len(tests.families),
            "samples": samples,
            **decoding,
            "sets": {
                s.name: {"source": s.source, "problems": len(s.problems), "quarantined": tables.counts(s.quarantined)}
                for s in tests.own
            }
            | {
                b.name: {"source": b.source, "items": len(b.texts), "quarantined": tables.counts(b.quarantined)}
                for b in tests.benchmarks
            }
            | {s.name: {**cards[s.name], "quarantined": tables.counts(s.quarantined)} for s in tests.judging},
            "contamination": {"gate": contamination, "dropped": len(tests.leaked)},
            "held_out": digest([p.id for p in tests.questions]),
            **({"judge": verdicts.card} if verdicts else {}),
        }
    )
    _record(stage, measures, rows, traces)


def _check(models: Sequence[str], against: str, contamination: str) -> None:
    if contamination not in ("refuse", "drop"):
        raise UserError(f"evaluate: contamination = {contamination!r} is neither refuse nor drop")
    for name in [*models, against]:
        if name not in MODELS:
            raise UserError(f"evaluate: there is no model {name!r}: {nearest(name, MODELS)}")


@dataclass(frozen=True)
class _TestProblems:
    """The test problems: held-out questions, held-out problems of families, a user's own test sets, sets that are not
    played, and sets for reward models and judges. `leaked` are the ids of problems that were trained on; the first two
    lists do not contain them."""

    questions: list[Problem]
    families: list[Problem]
    own: list[test_sets.TestSet]
    benchmarks: list[Any]
    judging: list[Any]
    leaked: set[str]


def _test_problems(stage: Stage, questions: int, per_family: int, sets: list, contamination: str) -> _TestProblems:
    held, solved = [], []
    if stage.reads("questions"):
        held = held_out(stage.input("questions", "problems.parquet"), questions, stage.seed)
    if stage.reads("problems"):
        solved = held_out(stage.input("problems", "problems.parquet"), per_family, stage.seed, by_family=True)
    own: list[test_sets.TestSet] = []
    benchmarks: list[Any] = []
    judging: list[Any] = []
    if sets:
        from tasks.evaluation.benchmarks import is_benchmark, load_benchmark
        from tasks.evaluation.judging import is_judging, load_judging

        for i, spec in enumerate(sets):
            if is_judging(spec):
                judging.append(load_judging(stage, spec, i))
            elif is_benchmark(spec):
                benchmarks.append(load_benchmark(stage, spec, i))
            else:
                own.append(test_sets.load(stage, spec, i))
    if twice := [name for name, n in Counter(s.name for s in (*own, *benchmarks, *judging)).items() if n > 1]:
        raise UserError(f"evaluate.sets: two sets are called {twice[0]!r}: give each a name of its own")
    played = {"questions": held, "families": solved} | {s.name: s.problems for s in own}
    texts = {
        name: [(p.id, str(p.lineage.get("question", p.question))) for p in problems]
        for name, problems in played.items()
    }
    leaked = trained_on(
        stage, texts | {b.name: b.texts for b in (*benchmarks, *judging)}, refuse=contamination == "refuse"
    )
    held, solved = ([p for p in problems if p.id not in leaked] for problems in (held, solved))
    return _TestProblems(held, solved, own, benchmarks, judging, leaked)


def _runs(
    models: Sequence[str],
    tests: _TestProblems,
    samples: int,
    family_samples: int,
    blanked_samples: int,
    search: Mapping[str, Callable[..., str]],
) -> list[Run]:
    """The runs of every model on everything, and of the last once more with a search that finds nothing.

    Raises UserError if every problem of a run was trained on."""
    problems = tests.questions or tests.families  # a project without questions is measured on its problems
    runs = [Run(name, name, problems, samples, search) for name in models if problems]
    if tests.questions and tests.families:
        runs += [Run(f"{name}, families", name, tests.families, family_samples, search) for name in models]
    runs += [
        Run(f"{name}, {s.name}", name, [p for p in s.problems if p.id not in tests.leaked], s.samples, search)
        for name in models
        for s in tests.own
    ]
    blank = {**search, "search": Blank()}
    if tests.questions:
        runs += [
            Run(f"{models[-1]}, search blanked", models[-1], tests.questions, blanked_samples, blank, blanked=True)
        ]
    for r in runs:
        if not r.problems:
            raise UserError(f"evaluate: every problem of {r.name!r} was trained on: there is nothing left to ask")
    return runs


def _decoded(
    model: str,
    tests: _TestProblems,
    decoders: Sequence[Any],
    samples: int,
    search: Mapping[str, Callable[..., str]],
) -> list[Run]:
    """The runs of a model on the questions (or problems) with each decoder. Raises UserError for a decoder that is
    listed twice."""
    problems = tests.questions or tests.families
    names = [by_decoders.label(d) for d in decoders]
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        raise UserError(f"evaluate.decoders: {twice[0]} is listed twice: leave one out, or give it other knobs")
    return [
        Run(f"{model}, decoded by {name}", model, problems, samples, search, decoder=d)
        for name, d in zip(names, decoders, strict=True)
        if problems
    ]


def _merged(
    models: Sequence[str],
    base: str,
    tests: _TestProblems,
    merges: Sequence[Any],
    samples: int,
    search: Mapping[str, Callable[..., str]],
) -> list[Run]:
    """The runs of the merges on the questions (or problems). Raises UserError if there is nothing to merge, and for a
    merge that is listed twice."""
    if not merges:
        return []
    if base not in ("base", "sft"):
        raise UserError(f"evaluate.merge_base is {base!r}: it is what the others were trained from, base or sft")
    if not any(m not in ("base", base) for m in models):
        raise UserError(
            f"evaluate.merges: no model of evaluate.models was trained from {base}: put prefer and rl among them"
        )
    names = [merging.label(m) for m in merges]
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        raise UserError(f"evaluate.merges: {twice[0]} is listed twice: leave one out, or give it other knobs")
    problems = tests.questions or tests.families
    return [
        Run(f"merged by {name}", models[-1], problems, samples, search, merge=m)
        for name, m in zip(names, merges, strict=True)
        if problems
    ]


def _reward_model(stage: Stage, dtype: str, device: str) -> Any:
    from tasks.models.reward_model import RewardModel

    if not stage.reads("reward"):
        raise UserError(
            "evaluate: this run has no stage `reward`: leave out what asks its model (evaluate.sets, metrics)"
        )
    word = json.loads(stage.input("reward", "card.json").read_text(encoding="utf-8")).get("verdict", "")
    return RewardModel(stage.input("reward", "model"), word, dtype=dtype, device=device)


@dataclass(kw_only=True)
class _Players:
    """Plays runs, with one model in memory at a time: the runs of one model follow each other, and its merges come
    after them."""

    stage: Stage
    envs: Mapping[str, Any]
    sampling: Sampling
    max_tokens: int
    batch_size: int
    device: str
    dtype: str
    rewards: by_decoders.Rewards | None = None
    decoder_tokens: int = 0
    way: Any = None
    merge_base: str = "sft"
    trained: Sequence[str] = ()
    before: Path | None = None  # the model that preference training began with
    loaded: str = ""
    model: Any = None
    renderer: Any = None
    sampler: Any = None
    team: Mapping[str, str] = field(default_factory=dict)  # role -> its policy, of the model rl
    plays: Mapping[str, str] = field(default_factory=dict)
    decoding: dict[str, Any] = field(default_factory=dict)

    def load(self, name: str, merge: Any = None, *, team: bool = False) -> None:
        """Loads a model, or a merge of models; with `team`, all policies of a stage rl that trained several."""
        played = self.team if team and name == "rl" else {}
        called = name if merge is None else f"merged by {merging.label(merge)}"
        called += ", a team" if played else ""
        if called == self.loaded:
            return
        self.model = self.sampler = None  # frees the memory of the previous model first
        how = {"dtype": self.dtype, "device": self.device, "longest": self.max_tokens}
        if played:
            self.model, tokenizer = load_team(self.stage, played, **how)
        elif merge is None:
            self.model, tokenizer = load_model(self.stage.input(*MODELS[name]), **how)
        else:
            places = [(m, self.stage.input(*MODELS[m])) for m in (self.merge_base, *self.trained)]
            self.model, tokenizer = merging.merged(
                merge, places[0], places[1:], texts=self._asked(), seed=self.stage.seed, **how
            )
        self.renderer, self.loaded = Renderer(tokenizer), called
        self.plays = cast(played, self.envs) if played else {}
        self.sampler, self.decoding = TorchSampler(model=self.model, end_id=self.renderer.end_id), {}
        if self.way is not None and merge is None and name != "base":
            self.way.begin(self.model, self.renderer, self.stage.input(*MODELS[name]))
            self.sampler = self.way.sampler(self.model, self.renderer)

    def _by(self, run: Run) -> Any:
        """The sampler of a run's turns."""
        if run.decoder is None:
            return self.sampler
        if run.name not in self.decoding:
            self.decoding[run.name] = by_decoders.decoding(
                run.decoder,
                self.sampler,
                self.renderer,
                rewards=self.rewards,
                pairs=self._pairs,
                forward_tokens=self.decoder_tokens,
                reference=self._reference if self.before is not None else None,
            )
        return self.decoding[run.name]

    def _reference(self) -> TorchSampler:
        assert self.before is not None
        model, _ = load_model(self.before, dtype=self.dtype, device=self.device, longest=self.max_tokens)
        return TorchSampler(model=model, end_id=self.renderer.end_id)

    def _asked(self) -> list[str]:
        """Texts of the split train, for merges that use activations."""
        known = {text for _, _, text in training_texts(self.stage) if text}
        return sorted(known, key=lambda text: digest("merge", self.stage.seed, text))[:50]

    def _pairs(self) -> list[PreferencePair]:
        if not self.stage.reads("clean"):
            return []
        return [
            p for p in tables.read(self.stage.input("clean", "pairs.parquet"), PreferencePair) if p.split == "train"
        ]

    def play(self, run: Run, part: Sequence[Problem]) -> list[Rollout]:
        self.load(run.model, run.merge, team=run.decoder is None and run.merge is None)
        player = Player(
            sampler=self._by(run),
            renderer=self.renderer,
            envs=self.envs,
            tools=run.tools,
            sampling=self.sampling,
            max_tokens=self.max_tokens,
            batch_size=self.batch_size,
            timed=True,
            plays=self.plays,
        )
        # All models use the same random numbers: differences between models are paired, which reduces their variance.
        return [r for group in player.play(part, run.samples, self.stage.seed, "evaluate") for r in group.rollouts]

    def features(self, rollouts: Sequence[Rollout]) -> list[list[float] | None]:
        """The hidden state of the model that played them, at the end of each prompt."""
        from tasks.models.prompt_states import prompt_features

        return prompt_features(self.model, rollouts, device=self.device)


def _unscorable(rows: Sequence[Mapping[str, Any]], most: float) -> int:
    """The number of rollouts without a score; raises ValueError if their share exceeds `most`."""
    missing = sum(r["score"] is None for r in rows)
    if rows and missing > most * len(rows):
        first = next(r for r in rows if r["score"] is None)
        raise ValueError(
            f"{missing} of {len(rows)} rollouts could not be scored, more than max_unscorable = {most}; the first: problem "
            f"{first['problem']}, {first['reason']}"
        )
    return missing


def _scores(rows: Sequence[Mapping[str, Any]], decoding: Mapping[str, float]) -> pd.DataFrame:
    frame = pd.DataFrame([{c: r[c] if c in r else decoding[c] for c in SCORES.columns} for r in rows])
    for column in ("score", "confidence", "reward"):
        frame[column] = frame[column].astype("float64")
    return SCORES.validate(frame)


def _write_episodes(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes the rows that keep their conversation, one per line. The file is an output, so it contains no measured
    times."""
    left_out = ("reference", "text", "features", "seconds")
    with path.open("w", encoding="utf-8") as f:
        for r in rows:
            if r["messages"] is not None:
                shown = {
                    c: v
                    for c, v in r.items()
                    if c not in left_out and (c not in ("reason", "reward", "forks", "speakers") or v)
                }
                f.write(json.dumps(shown, ensure_ascii=False) + "\n")


def _judged(
    stage: Stage,
    referee: Any,
    rows: Sequence[Mapping[str, Any]],
    runs: Sequence[Run],
    models: Sequence[str],
    against: str,
) -> Any:
    """The judge's verdicts on the last answers of each model; they are written to verdicts.jsonl."""
    problems = {p.id: p for r in runs for p in r.problems}
    seen = [r for r in rows if r["messages"] is not None and not r["blanked"]]
    last = {m: {r["problem"]: answered(r["messages"]) for r in seen if r["model"] == m} for m in models}
    verdicts = referee.compared(last, problems, against)
    (stage.out / "verdicts.jsonl").write_text(
        "".join(json.dumps(v, ensure_ascii=False) + "\n" for v in verdicts.verdicts), encoding="utf-8"
    )
    return verdicts


def _benchmarked(
    stage: Stage, measures: dict[str, Any], tests: _TestProblems, models: Sequence[str], against: str, players: _Players
) -> None:
    """Adds the models' results on the sets that are not played to `measures`; sets.jsonl has one line per item."""
    from tasks.evaluation.benchmarks import scored, summarised, written
    from tasks.evaluation.scored_set import Player as Asked

    def loaded(name: str) -> Any:
        players.load(name)
        return Asked(players.model, players.renderer)

    rows = scored(stage, tests.benchmarks, models, tests.leaked, loaded)
    (stage.out / "sets.jsonl").write_text(written(rows), encoding="utf-8")
    by_set, differences = summarised(tests.benchmarks, rows, models, against)
    measures["sets"] = measures.get("sets", {}) | plain(by_set)
    measures["difference"] |= plain(differences)
    correct(measures["difference"])


def _record(stage: Stage, measures: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], traces: int) -> None:
    """Records the events of the stage: the numbers for MLflow, and `traces` conversations with their times."""
    for name, values in measures["models"].items():
        stage.log({f"{name}/{m}": v["mean"] for m, v in values.items() if m in WATCHED and v.get("mean") is not None})
    for name, by_model in measures.get("sets", {}).items():
        for model, values in by_model.items():
            stage.log({f"{model}/{name}/{m}": v["mean"] for m, v in values.items() if v.get("mean") is not None})
    for name, values in measures.get("judging", {}).items():
        stage.log({f"judging/{name}/{m}": v["mean"] for m, v in values.items()})
    for pair, rates in measures.get("judged", {}).items():
        stage.log({f"{pair.partition(' over ')[0]}/win_rate": rates["win_rate"]["mean"]})
    if traces and rows:
        path = stage.out / "episodes.jsonl"
        sent = [episodes.conversation(e) for e in episodes.chosen(path, traces)]
        timed = {episodes.conversation(r): r["seconds"] for r in rows if r["sample"] == 0 and r["seconds"]}
        stage.episodes(path, traces, {name: timed[name] for name in sent if name in timed})
    stage.artifact(stage.out / "metrics.json")


def held_out(path: Path, n: int, seed: int, *, by_family: bool = False) -> list[Problem]:
    """n test problems (of each family) chosen by a hash of their id, so that a change of the table's order or size
    changes few of them."""
    families = tables.least(
        (p for p in tables.each(path, Problem) if p.split == "test"),
        lambda family: n,
        lambda p: digest("evaluate", seed, p.id),
        lambda p: p.family if by_family else "",
    )
    if not families:
        raise UserError(
            f"{path} holds no problem of the split test: nothing is held out to evaluate on; give the stage before it a larger n_test"
        )
    return [p for mine in families.values() for p in mine]


def trained_on(stage: Stage, held_out: Mapping[str, Sequence[tuple[str, str]]], *, refuse: bool) -> set[str]:
    """The ids of problems (id, text) that were trained on: the texts are compared with every problem of the split
    train, every demonstration and every pair.

    With `refuse`, raises UserError that names the rows; all of them are then in contaminated.jsonl of the work folder.
    """
    # For questions and families only an identical text counts: texts of one template are similar by construction,
    # and are split by their root.
    finders = [Contamination(texts, near=name not in ("questions", "families")) for name, texts in held_out.items()]
    for row in training_texts(stage):
        for finder in finders:
            finder.see(*row)
    hits = [hit for finder in finders for hit in finder.hits]
    if hits and refuse:
        path = stage.out / "contaminated.jsonl"
        path.write_text("".join(json.dumps(vars(h), ensure_ascii=False) + "\n" for h in hits), encoding="utf-8")
        first = "; ".join(f"{h.text[:80]!r} is {h.overlap:.0%} of {h.where} {h.trained}" for h in hits[:3])
        raise UserError(
            f"evaluate: {len(hits)} evaluation rows are also in the training data ({first}; all in {path.relative_to(stage.root)}): "
            "take them out of one of the two, or set evaluate.contamination to drop"
        )
    return {h.row for h in hits}


def training_texts(stage: Stage) -> Iterator[tuple[str, str, str]]:
    """(id, where, text) of every row that any model of the run may have learned from."""
    for source in (s for s in ("questions", "problems") if stage.reads(s)):
        for p in tables.each(stage.input(source, "problems.parquet"), Problem):
            if p.split == "train":
                # of own rows: without the words that say how to answer
                plain = str(p.lineage.get("question", p.question))
                for text in dict.fromkeys((p.question, plain)):
                    yield p.id, f"artifacts/{source}", text
    each = tables.each
    for t in (
        each(stage.input("demonstrations", "demonstrations.parquet"), Demonstration)
        if stage.reads("demonstrations")
        else ()
    ):
        if t.split == "test":
            continue
        yield t.id, "artifacts/demonstrations", next((m.content for m in t.messages if m.role == "user"), "")
    for pair in each(stage.input("clean", "pairs.parquet"), PreferencePair) if stage.reads("clean") else ():
        if pair.split == "train":
            for text in (*(m.content for m in pair.prompt if m.role == "user"), pair.chosen, pair.rejected):
                yield pair.id, "artifacts/clean", text


def resumable(
    finished: Finished,
    problems: Sequence[Problem],
    size: int,
    play: Callable[[Sequence[Problem]], list[Rollout]],
    scorer: Callable[[Sequence[Rollout]], list[float]] | None = None,
    probe: Callable[[Sequence[Rollout]], list[list[float] | None]] | None = None,
) -> Iterator[list[dict[str, Any]]]:
    """Rows of the rollouts of `problems`, `size` problems at a time. A finished part is not played again."""

    def rows(part: Sequence[Problem]) -> list[dict[str, Any]]:
        counts: Counter[str] = Counter()
        out, played = [], play(part)
        rewards = scorer(played) if scorer else [None] * len(played)
        features = probe(played) if probe else [None] * len(played)
        for r, reward, seen in zip(played, rewards, features, strict=True):
            out.append({**row(r, counts[r.group]), "reward": reward, **({"features": seen} if probe else {})})
            counts[r.group] += 1
        return out

    for lo in range(0, len(problems), size):
        yield finished(str(lo), lambda lo=lo: rows(problems[lo : lo + size]))


def row(rollout: Rollout, sample: int) -> dict[str, Any]:
    """The row that is kept of one rollout; only the first sample of each problem keeps its conversation."""
    problem, score = rollout.problem, rollout.score
    written = [m.content for m in rollout.info["messages"] if m.role == "assistant"]
    last = next((s.logp for s in reversed(rollout.segments) if s.logp is not None), None)
    if any("latent" in s.extras for s in rollout.segments):  # densities of vectors are no probability
        last = None
    forward = [int(s.extras["forward_tokens"].sum()) for s in rollout.segments if "forward_tokens" in s.extras]
    return {
        "problem": problem.id,
        "sample": sample,
        "env": problem.env,
        "family": problem.family,
        "hops": int(problem.difficulty.get("hops", 0)),
        "score": score.value if isinstance(score, Scored) else None,
        "reason": "" if isinstance(score, Scored) else score.reason,
        "outcome": outcome(rollout),
        "calls": int(rollout.info.get("calls", 0)),
        "turns": rollout.turns,
        "tokens": rollout.n_model,
        "said": extract_answer(written[-1]) or "" if written else "",
        "text": "\n".join(written),
        "confidence": None if last is None else float(np.exp(np.sum(last, dtype=np.float64))),
        "answer": problem.answer,
        "reference": problem.answer,
        "messages": _conversation(rollout) if sample == 0 else None,
        "forks": [list(f) for f in rollout.info.get("forks", ())] if sample == 0 else [],
        "speakers": [f"{s.speaker}: {s.policy}" for s in rollout.segments if s.policy] if sample == 0 else [],
        "seconds": list(rollout.info.get("seconds", ())) if sample == 0 else [],
        **({"forward_tokens": sum(forward)} if forward else {}),
        **{
            name: sum(int(s.extras[name].sum()) for s in rollout.segments if name in s.extras)
            for name in by_decoders.STOPPED
            if any(name in s.extras for s in rollout.segments)
        },
    }


def _conversation(rollout: Rollout) -> list[dict[str, Any]]:
    """The messages as episodes keep them; with the last answer what it makes, where its verifier draws that."""
    out = [_said(m) for m in rollout.info["messages"]]
    last = next((m for m in reversed(out) if m["role"] == "assistant"), None)
    if last and (answer := extract_answer(last["content"])) and (drawings := drawn(rollout.problem, answer)):
        last["pictures"] = [pictures.data_url(one) for one in drawings]
    return out


def _said(message: Message) -> dict[str, Any]:
    """A message as episodes keep it: what it shows is in it, small, since an environment draws pictures that no table has."""
    shown = [pictures.data_url(HELD.of(name)) for name in message.media]
    return {"role": message.role, "content": message.content, **({"pictures": shown} if shown else {})}


def answered(messages: Sequence[Mapping[str, Any]]) -> str:
    """The model's last turn, "" if it never spoke."""
    return next((m["content"] for m in reversed(messages) if m["role"] == "assistant"), "")
