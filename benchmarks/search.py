"""How fast is the search engine? `make bench-search`

Corpus: 6,000 paragraphs of Wikipedia (2WikiMultihopQA, from ../shared/data) where they are there, else 6,000 made of
20,000 words with Zipf's frequencies, 71 words each.

- index: seconds of CPU time from pages in memory to an index opened from disk: ranking, phrases, titles. Peers: bm25s
  and SQLite FTS5, alone, with the tokenizers that they bring.
- queries: of twelve words that stand in one paragraph, per second of CPU time, three results each, none asked twice.
  Same peers (FTS5: the words joined by OR, ranked by its bm25).
- service: `espalier search serve` in a process of its own, held to one core, asked RATE times a second for SECONDS
  seconds over CLIENTS connections, whether earlier answers have come or not: 70 % search, 20 % open, 10 % find. Latency
  runs from the moment when a request was due to its last byte, so that a service that falls behind is seen. Median and
  99th percentile; low and high over PARTS parts. "CPU time per request" is that of the service's process. Where more
  processes want a core than there are cores (/proc/loadavg) a latency says nothing about the service: then the CPU time
  alone is measured, over one part.
- a million passages: LARGE passages of 30 words (50,000 words with Zipf's frequencies), made one after the other, in a
  process of its own: CPU seconds of building and opening the index, the peak memory of the process, and queries as
  above. Measured once; `--large` measures this alone and keeps the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import bm25s
import numpy as np
import psutil

from benchmarks.rows import result_row
from synth.search.bm25 import words
from synth.search.index import Page, SearchIndex, build_index

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "search.json"
DATA = ROOT.parent / "shared" / "data" / "2wiki" / "2wikimultihopqa_corpus.json"
COMMAND = "make bench-search"
PAGES, QUERIES, PARTS, RATE, SECONDS, CLIENTS, SEED = 6_000, 1_000, 5, 100, 10, 16, 7
LARGE = 1_000_000


def corpus() -> tuple[str, list[Page]]:
    """(name, pages)."""
    if DATA.exists():
        rows = json.loads(DATA.read_text(encoding="utf-8"))[:PAGES]
        return "6,000 paragraphs of Wikipedia", [
            Page(id=f"p{i}", title=r["title"], text=r["text"]) for i, r in enumerate(rows)
        ]
    rng = np.random.default_rng(SEED)
    share = 1 / np.arange(1, 20_001)
    drawn = rng.choice(20_000, (PAGES, 71), p=share / share.sum())
    pages = [Page(id=f"p{i}", title=f"Page {i}", text=" ".join(f"w{x}" for x in row)) for i, row in enumerate(drawn)]
    return "6,000 made-up paragraphs", pages


def asked(pages: Sequence[Page], n: int, rng: random.Random) -> list[str]:
    """Queries: twelve words of a paragraph each."""
    out = []
    for page in rng.choices(pages, k=n):
        known = words(page.text)
        start = rng.randrange(max(1, len(known) - 12))
        out.append(" ".join(known[start : start + 12]) or page.title)
    return out


def seconds(function: Callable[[], object]) -> float:
    begin = time.process_time()
    function()
    return time.process_time() - begin


# ---- the library and its peers


def fts(pages: Sequence[Page]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE page USING fts5(title, text)")
    connection.executemany("INSERT INTO page VALUES (?, ?)", ((p.title, p.text) for p in pages))
    connection.commit()
    return connection


def alone(pages: Sequence[Page]) -> bm25s.BM25:
    index = bm25s.BM25(method="lucene")
    index.index(
        bm25s.tokenize([f"{p.title} {p.text}" for p in pages], stopwords=None, show_progress=False), show_progress=False
    )
    return index


def retrieved(index: bm25s.BM25, query: str) -> object:
    return index.retrieve(bm25s.tokenize([query], stopwords=None, show_progress=False), k=3, show_progress=False)


def matched(table: sqlite3.Connection, query: str) -> list:
    any_of = " OR ".join(f'"{w}"' for w in query.split())
    return table.execute("SELECT rowid FROM page WHERE page MATCH ? ORDER BY rank LIMIT 3", (any_of,)).fetchall()


def library(case: str, pages: list[Page]) -> list[dict]:
    indexing: dict[str, list[float]] = {"here": [], "bm25s": [], "SQLite FTS5": []}
    asking: dict[str, list[float]] = {"here": [], "bm25s": [], "SQLite FTS5": []}
    with tempfile.TemporaryDirectory() as folder:
        for part in range(PARTS):
            path = Path(folder) / str(part)
            results: dict[str, object] = {}
            indexing["here"].append(seconds(lambda: results.update(here=build_index(pages, path))))  # noqa: B023
            indexing["bm25s"].append(seconds(lambda: results.update(bm25s=alone(pages))))  # noqa: B023
            indexing["SQLite FTS5"].append(seconds(lambda: results.update(fts=fts(pages))))  # noqa: B023
            queries = asked(pages, QUERIES, random.Random(f"{SEED} {part}"))
            pages_index, index, table = results["here"], results["bm25s"], results["fts"]
            assert (
                isinstance(pages_index, SearchIndex)
                and isinstance(index, bm25s.BM25)
                and isinstance(table, sqlite3.Connection)
            )
            asking["here"].append(QUERIES / seconds(lambda: [pages_index.search(q) for q in queries]))  # noqa: B023
            asking["bm25s"].append(QUERIES / seconds(lambda: [retrieved(index, q) for q in queries]))  # noqa: B023
            some = queries[:100]  # it is slow
            asking["SQLite FTS5"].append(len(some) / seconds(lambda: [matched(table, q) for q in some]))  # noqa: B023
    return [
        result(case, "index", "s", "lower", indexing, PAGES),
        result(case, "queries", "1/s", "higher", asking, PARTS * QUERIES),
    ]


def result(case: str, metric: str, unit: str, better: str, parts: dict[str, list[float]], n: int) -> dict:
    """One result: the median of the parts, their least and greatest, and the median of each peer."""
    value = statistics.median(parts["here"])
    peers = {k: statistics.median(v) for k, v in parts.items() if k != "here"}
    best = (min if better == "lower" else max)(peers.values(), default=None)
    ratio = None if best is None else best / value if better == "lower" else value / best
    return result_row(
        case,
        metric,
        value,
        unit,
        COMMAND,
        n,
        better=better,
        low=min(parts["here"]),
        high=max(parts["here"]),
        one_core=True,
        peers=peers,
        ratio=ratio,
        sqlite=sqlite3.sqlite_version,
        **{p: version(p) for p in ("bm25s", "fastapi")},
    )


# ---- the service


SERVER = """
import os, sys
from pathlib import Path
from synth.search.index import open_index
from tasks.knowledge.service import serve, service
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]}) if hasattr(os, "sched_setaffinity") else None
serve(service(open_index(Path(sys.argv[1]))), host="127.0.0.1", port=int(sys.argv[2]))
"""


def requests(pages: Sequence[Page], n: int, rng: random.Random) -> list[bytes]:
    """`n` requests as they go over the wire."""
    out = []
    for query in asked(pages, n, rng):
        kind, page = rng.random(), rng.choice(pages)
        path, body = (
            ("/search", {"query": query})
            if kind < 0.7
            else ("/open", {"page": page.title})
            if kind < 0.9
            else ("/find", {"text": " ".join(query.split()[:2])})
        )
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        out.append(head.encode() + data)
    return out


async def drive(port: int, wire: Sequence[bytes]) -> list[float]:
    """Latencies in milliseconds of requests that are due every 1 / RATE seconds. Raises ValueError for an answer that
    is not 200."""
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(CLIENTS):
        free.put_nowait(await asyncio.open_connection("127.0.0.1", port))
    begin, took = time.perf_counter() + 0.1, []

    async def one(i: int, data: bytes) -> None:
        due = begin + i / RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        reader, writer = await free.get()
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise ValueError(f"the service says {head[:60]!r}")
        length = next(
            int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        )
        await reader.readexactly(length)
        took.append(1000 * (time.perf_counter() - due))
        free.put_nowait((reader, writer))

    await asyncio.gather(*(one(i, data) for i, data in enumerate(wire)))
    return took


def served(case: str, pages: list[Page]) -> list[dict]:
    quiet = os.getloadavg()[0] <= (os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        build_index(pages, Path(folder) / "index")
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        child = subprocess.Popen([sys.executable, "-c", SERVER, str(Path(folder) / "index"), str(port)], cwd=ROOT)
        try:
            for _ in range(300):
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            asyncio.run(drive(port, requests(pages, RATE, random.Random(0))))  # what is imported late is imported now
            before = cpu(child.pid)
            wires = [
                requests(pages, RATE * SECONDS, random.Random(f"{SEED} {i}")) for i in range(PARTS if quiet else 1)
            ]
            parts = [asyncio.run(drive(port, wire)) for wire in wires]
            spent = 1000 * (cpu(child.pid) - before) / sum(map(len, parts))
        finally:
            child.terminate()
            child.wait()
    name = f"{case}, service at {RATE} requests/s"
    n = sum(map(len, parts))
    if not quiet:
        print(f"the machine is busy (load {os.getloadavg()[0]:.0f}): latencies are not measured", flush=True)
    rows = []
    for at in (50, 99) if quiet else ():
        rows.append(result(name, f"p{at}", "ms", "lower", {"here": [float(np.percentile(p, at)) for p in parts]}, n))
    return [*rows, result(name, "CPU time per request", "ms", "lower", {"here": [spent]}, n)]


def cpu(pid: int) -> float:
    """Seconds of CPU time of a process so far."""
    used = psutil.Process(pid).cpu_times()
    return used.user + used.system


# ---- a million passages


def made_up(n: int) -> Iterator[Page]:
    rng, known = np.random.default_rng(SEED), [f"w{i}" for i in range(50_000)]
    for i in range(n):
        drawn = rng.zipf(1.3, size=30) % len(known)
        yield Page(id=f"p{i}", title=f"Title {i}", text=" ".join(known[j] for j in drawn))


def large_child() -> None:
    """In a process of its own: what `large` reports, as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        took: list[SearchIndex] = []
        spent = seconds(lambda: took.append(build_index(made_up(LARGE), Path(folder) / "index")))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        some = asked(list(made_up(QUERIES)), 100, random.Random(SEED))
        rate = len(some) / seconds(lambda: [took[0].search(q) for q in some])
    print(json.dumps({"index": spent, "peak memory": peak, "queries": rate}))


def large() -> list[dict]:
    out = subprocess.run(
        [sys.executable, "-m", "benchmarks.search", "--child"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    measured = json.loads(out.splitlines()[-1])
    units = {"index": ("s", "lower"), "peak memory": ("MB", "lower"), "queries": ("1/s", "higher")}
    case = f"{LARGE:,} passages of 30 words"
    return [result(case, k, *units[k], {"here": [v]}, 1) for k, v in measured.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--large", action="store_true", help="measure the million passages alone")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        large_child()
        return 0
    rows = large()
    if args.large:
        known = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else []
        rows = [r for r in known if r["case"] != rows[0]["case"]] + rows
    else:
        case, pages = corpus()
        rows = library(case, pages) + served(case, pages) + rows
    for r in rows:
        print(
            f"{r['case']}: {r['metric']} {r['value']:.3g} {r['unit']} [{r['low']:.3g}, {r['high']:.3g}] {r['peers'] or ''}"
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
