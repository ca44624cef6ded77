"""Embeddings beside BM25, and names that are followed: which texts are found, what is kept on disk, what is refused."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from flows import cli
from synth.knowledge.kb import Passage
from synth.search import embeddings, hybrid
from synth.search.embeddings import Model, Static, embedder
from synth.search.hybrid import Hybrid, Vectors, names_in
from synth.search.index import NOTHING, Page, build_index, open_index
from tasks.core.errors import UserError
from tasks.knowledge import bases, knowledge
from tasks.knowledge.search_tool import Search
from tasks.storage import tables

WORDS = ["[UNK]", "[PAD]", "movie", "film", "river", "stream", "red", "crimson", "shows", "flows", "a", "The"]
TABLE = {
    "movie": 0,
    "film": 0,
    "river": 1,
    "stream": 1,
    "red": 2,
    "crimson": 2,
}  # what means the same has the same axis
PAGES = [
    Page(id="1", title="Alpha (1950 play)", text="It was staged by Jo K. Hall, with Nan Orr and The."),
    Page(id="2", title="Jo K. Hall", text="Born in Zelton.\nA baker by trade."),
    Page(id="3", title="Nan Orr", text="Dancer of the court."),
    Page(id="4", title="Beta", text="Staged by nobody."),
    Page(id="5", title="Gamma", text="Follows Alpha in the cycle."),
]


def tokenizer() -> Tokenizer:
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()  # ty: ignore
    return words


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A package of the name of WordLlama, with a table of twelve words."""
    folder = tmp_path / "site" / "wordllama"
    for file in (embeddings._TABLE, embeddings._TOKENIZER):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text("raise ImportError('its code is not to run')\n")
    rows = np.zeros((len(WORDS), 4), np.float16)
    for word, axis in TABLE.items():
        rows[WORDS.index(word), axis] = 1
    save_file({"embedding.weight": rows}, folder / embeddings._TABLE)
    tokenizer().save(str(folder / embeddings._TOKENIZER))
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.delitem(sys.modules, "wordllama", raising=False)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A sentence-embedding model of one layer."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertModel(config).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer(), pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    return folder


def test_static_vectors_are_means_of_rows_of_length_1(package):
    embed = embedder("static")
    assert isinstance(embed, Static) and len(embed.digest) == 64
    got = embed(["red film", "", "nothing known", "film film river"])
    want = np.array([[0.5, 0, 0.5, 0], [0] * 4, [0] * 4, [2, 1, 0, 0]], np.float32)
    np.testing.assert_allclose(got, want / np.maximum(np.linalg.norm(want, axis=1, keepdims=True), 1e-9), atol=1e-6)


def test_a_models_vectors_are_means_over_the_tokens_of_the_text_alone(model):
    embed = Model(model)
    one, both = embed(["red film"]), embed(["red film", "a river flows a stream shows red"])
    np.testing.assert_allclose(one[0], both[0], atol=1e-5)  # whatever it is padded to
    net = BertModel.from_pretrained(model).eval()
    with torch.no_grad():
        hidden = net(input_ids=torch.tensor([[WORDS.index("red"), WORDS.index("film")]])).last_hidden_state[0]
    mean = hidden.mean(0).numpy()
    np.testing.assert_allclose(one[0], mean / np.linalg.norm(mean), atol=1e-5)


def test_embeddings_find_what_shares_no_word_with_the_query(package):
    pages = [Page(id=str(i), title=f"P{i}", text=t) for i, t in enumerate(["river flows", "crimson", "a film"])]
    plain = build_index(pages)
    assert plain.search("stream", 1) == NOTHING
    index = plain.hybrid(embedder("static"))
    assert index.search("stream", 1) == "P0: river flows" and index.search("red movie", 2).count("\n") == 1
    assert "river" not in index.search("red movie", 2)


def test_scores_are_those_that_the_module_states(package):
    texts = ["red film a", "crimson stream", "a river shows"]
    embed, ranking = embedder("static"), hybrid.Ranking.of(texts)
    scorer = Hybrid(ranking, None, embed=embed, vectors=Vectors.of(texts, 3, embed))  # type: ignore[arg-type]
    lexical = ranking.scores("red river")
    want = lexical / lexical.max() + 0.5 * (embed(texts) @ embed(["red river"])[0])
    np.testing.assert_allclose(scorer.scores("red river"), want / want.max(), atol=1e-3)  # the vectors are float16


@pytest.mark.parametrize("block", [1, 2, 1000])
def test_the_product_is_the_same_in_any_blocks_in_memory_and_on_disk(block, tmp_path, monkeypatch, package):
    monkeypatch.setattr(hybrid, "_BLOCK", block)
    embed, texts = embedder("static"), ["red film", "river", "", "crimson a"] * 3
    query = embed(["red stream"])[0]
    want = embed(texts).astype(np.float16).astype(np.float32) @ query
    for folder in (None, tmp_path / "v"):
        np.testing.assert_allclose(Vectors.of(texts, len(texts), embed, folder).times(query), want, atol=1e-6)


def test_vectors_on_disk_are_kept_until_texts_or_embeddings_change(tmp_path, package, model):
    batches: list[int] = []

    def texts(*some: str):
        batches.append(len(some))
        yield from some

    embed = embedder("static")
    Vectors.of(texts("red"), 1, embed, tmp_path, "x")
    file = tmp_path / "vectors.f16"
    first = file.read_bytes()
    assert len(first) == 2 * 4 and not file.with_suffix(".tmp").exists()
    Vectors.of(texts("river"), 1, embed, tmp_path, "x")
    assert file.read_bytes() == first
    Vectors.of(texts("river"), 1, embed, tmp_path, "y")
    assert file.read_bytes() != first
    Vectors.of(texts("river"), 1, Model(model), tmp_path, "y")
    assert len(file.read_bytes()) == 2 * 16


def test_names_lead_to_the_pages_that_the_best_lines_name():
    index = build_index(PAGES)
    query = "born staged Alpha play 1950"
    assert [x.page for x in index.hits(query, 5)].count("3") == 0
    followed = index.hybrid(follow=1)
    hits = [(x.page, x.text) for x in followed.hits(query, 3)]
    assert hits[0][0] == "1" and ("2", "Born in Zelton.") in hits  # of its lines the one that fits the question
    assert {p for p, _ in hits} == {"1", "2", "3"}
    assert [x.page for x in index.hybrid(follow=0).hits(query, 5)] == [x.page for x in index.hits(query, 5)]
    assert index.hybrid(follow=1).hits("cycle", 2)[1].page == "1"  # "Alpha" is "Alpha (1950 play)"


def test_pages_that_the_query_names_come_before_those_that_the_best_lines_name():
    pages = [
        Page(id="a", title="Grey Heron", text="A film by Jo K. Hall."),
        Page(id="b", title="Tide", text="Shot in 1950, in a studio that burned down years after."),
        Page(id="h", title="Jo K. Hall", text="Which of the films came out first is not known."),
        Page(id="o", title="Nan Orr", text="Which of her films came first is not known."),
    ]
    index = build_index(pages).hybrid(follow=1)
    query = "Which of the films came out first, Grey Heron or Tide?"
    assert {x.page for x in index.hits(query, 3)} == {"a", "b", "h"}
    assert {x.page for x in index.hits(query.lower(), 3)} == {"a", "h", "o"}  # names begin with no small letter


def test_only_the_best_lines_are_followed():
    pages = [
        Page(id="a", title="Able", text="one two three, of Nan Orr"),
        Page(id="b", title="Bold", text="one two, of Kim Poe"),
        Page(id="c", title="Nan Orr", text="Dancer."),
        Page(id="d", title="Kim Poe", text="Baker."),
    ]
    index = build_index(pages)
    by_follow = [{x.page for x in index.hybrid(follow=n).hits("one two three", 9)} for n in range(3)]
    assert by_follow == [{"a", "b"}, {"a", "b", "c"}, {"a", "b", "c", "d"}]


def test_the_name_of_its_own_page_takes_no_place():
    pages = [Page(id="a", title="Ann Fox", text="Ann Fox danced with Jo K. Hall and Nan Orr."), *PAGES[1:3]]
    hits = build_index(pages).hybrid(follow=1).hits("danced", 9)
    assert {x.page for x in hits} == {"a", "2", "3"}


def test_the_search_tool_follows_names_too():
    passages = [Passage(id=p.id, entity=p.id, title=p.title, text=p.text, facts=()) for p in PAGES]
    query = "staged play 1950 Alpha"
    plain, followed = Search(passages, k=4), Search(passages, k=4, follow=1)
    assert "Dancer" not in plain(query) and "Dancer" in followed(query) and "Dancer" in followed.index.search(query)
    with pytest.raises(ValueError, match="-1 texts"):
        Search(passages, follow=-1)


def test_a_name_of_many_pages_leads_nowhere():
    same = [Page(id=f"h{i}", title="Jo K. Hall", text=f"Number {i}.") for i in range(hybrid.ALIKE)]
    query = "staged play 1950"
    few = build_index([PAGES[0], *same]).hybrid(follow=1)
    many = build_index([*PAGES[:2], *same]).hybrid(follow=1)
    assert len(few.hits(query, 9)) == 1 + hybrid.NAMES and len(many.hits(query, 9)) == 1


def test_names_are_the_longest_and_begin_with_no_small_letter():
    known = {"Jo K. Hall", "Jo", "Nan Orr", "court", "Mars", "The", "Zelton"}
    text = "Jo K. Hall and Nan Orr's court, the Mars. The Zelton. Jo"
    assert list(names_in(text, known.__contains__)) == ["Jo K. Hall", "Nan Orr", "Mars", "Zelton"]


def test_default_runs_rank_as_before(tmp_path):
    index = build_index(PAGES, tmp_path / "index")
    assert not list(tmp_path.rglob("vectors*"))
    assert isinstance(index._ranking, hybrid.Ranking) and not isinstance(Search([_passage()])._ranking, Hybrid)


def _passage() -> Passage:
    return Passage(id="1", entity="1", title="A", text="red film", facts=())


@pytest.fixture
def base(tmp_path, monkeypatch) -> Path:
    """A knowledge base of two documents, as `espalier kb build` writes it."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("# River\n\n- Length: 40 km\n- Country: Zelton\n\nThe river flows.\n")
    (notes / "b.md").write_text("# Other\n\n- Length: 70 km\n- Country: Zelton\n\nIt is crimson.\n")
    assert cli.main(["kb", "build", str(notes), "--out", str(tmp_path / "kb")]) == 0
    return tmp_path / "kb"


def test_the_command_searches_by_embeddings_and_keeps_them(base, package, capsys):
    capsys.readouterr()
    assert cli.main(["search", "ask", "stream", "--kb", str(base)]) == 0
    assert capsys.readouterr().out.strip() == NOTHING
    assert cli.main(["search", "ask", "stream", "--kb", str(base), "--embeddings", "static", "-k", "1"]) == 0
    assert "The river flows." in capsys.readouterr().out
    head = json.loads((card := base.with_name("kb.vectors") / "vectors.json").read_text())
    assert head["about"] == open_index(base / "index").digest()
    before = card.stat().st_mtime_ns
    assert cli.main(["search", "ask", "stream", "--kb", str(base), "--embeddings", "static", "-k", "1"]) == 0
    assert "The river flows." in capsys.readouterr().out and card.stat().st_mtime_ns == before


def test_what_is_not_there_is_refused_in_a_sentence(tmp_path, base, monkeypatch, capsys):
    monkeypatch.setattr(embeddings, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'espalier\[embeddings\]'"):
        bases.index(base, embeddings="static")
    assert cli.main(["search", "ask", "x", "--kb", str(base), "--embeddings", "static"]) != 0
    assert "espalier[embeddings]" in capsys.readouterr().err
    tables.write(tmp_path / "passages.parquet", [_passage()], Passage)
    with pytest.raises(UserError, match=r"pip install 'espalier\[embeddings\]'"):
        knowledge.load(tmp_path / "passages.parquet", embeddings="static")
    with pytest.raises(UserError, match="neither 'static' nor the folder of an embedding model"):
        knowledge.load(tmp_path / "passages.parquet", embeddings=str(tmp_path / "none"))
    with pytest.raises(ValueError, match="hybrid one already"):
        build_index(PAGES).hybrid(follow=1).hybrid()
