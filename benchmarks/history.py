"""How long the index of chats takes to build, to bring up to date and to search.

python benchmarks/history.py --chats 10000
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tinyllm_chat.chat.history import HistoryIndex

WORDS = 30_000  # of the invented language; the n-th is said 1/n as often as the first
SYLLABLES = ("ka", "to", "mi", "ré", "lu", "san", "der", "po", "ül", "ne", "vi", "cor", "ta", "shi", "em", "ba", "on")
HAN = "天地玄黃宇宙洪荒日月盈昃辰宿列張寒來暑往秋收冬藏"


class Invented:
    """Chats as they are on disk: a record for every token of an answer."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.words = ["".join(self._random.choices(SYLLABLES, k=self._random.randint(1, 4))) for _ in range(WORDS)]
        self._weights = [1 / (rank + 1) for rank in range(WORDS)]

    def chat(self, turns: int, answer: int) -> bytes:
        records: list[dict[str, object]] = [{"type": "header", "version": 1, "title": "", "created": 1.7e9}]
        parent = None
        for turn in range(turns):
            asked, answered = f"u{turn}", f"a{turn}"
            created = 1.7e9 + self._random.random() * 5e7
            question = " ".join(self._said(self._random.randint(4, 30)))
            if self._random.random() < 0.1:
                question += " " + "".join(self._random.choices(HAN, k=12))
            records.append({"type": "message", "id": asked, "parent": parent, "role": "user", "content": question})
            records.append({"type": "message", "id": answered, "parent": asked, "role": "assistant", "model": "Tiny"})
            for record in records[-2:]:
                record["created"] = created
            for word in self._said(self._random.randint(answer // 2, answer * 3 // 2)):
                records.append({"type": "delta", "id": answered, "text": f" {word}", "ids": [len(word)]})
            records.append({"type": "end", "id": answered, "reason": "eog"})
            parent = answered
        return b"".join(json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records)

    def queries(self, count: int) -> list[str]:
        """One to three words, as they are typed: frequent, rare, unfinished, Han."""
        found = []
        for _ in range(count):
            words = self._said(self._random.randint(1, 3))
            words.append(self._random.choice(self.words))
            query = " ".join(self._random.sample(words, self._random.randint(1, len(words))))
            found.append(query[: self._random.randint(2, len(query))] if self._random.random() < 0.5 else query)
        return [*found, *("".join(self._random.choices(HAN, k=2)) for _ in range(count // 10))]

    def _said(self, count: int) -> list[str]:
        return self._random.choices(self.words, self._weights, k=count)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(folder: Path, chats: int, turns: int, answer: int, queries: int, *, fts5: bool | None) -> None:
    invented = Invented(1)
    transcripts = folder / "transcripts"
    transcripts.mkdir()
    print(f"writing {chats} chats ...", file=sys.stderr)
    for number in range(chats):
        path = transcripts / f"chat-{number:06}.jsonl"
        path.write_bytes(invented.chat(turns, answer))
    size = sum(path.stat().st_size for path in transcripts.iterdir())
    index = HistoryIndex(transcripts, folder / "cache", fts5=fts5)
    print(f"{chats} chats of {turns} turns, {size / 1e6:.0f} MB of transcripts")
    print(f"build             {seconds(index.update):8.2f} s")
    print(f"nothing changed   {1e3 * seconds(index.update):8.1f} ms")
    os.utime(path, ns=(1, 1))
    print(f"one chat changed  {1e3 * seconds(index.update):8.1f} ms")
    print(f"list, first 200   {1e3 * seconds(lambda: index.chats(200)):8.1f} ms")
    times = sorted(1e3 * seconds(lambda text=text: index.search(text)) for text in invented.queries(queries))  # type: ignore[misc]
    p95 = times[int(0.95 * (len(times) - 1))]
    print(f"search            {statistics.median(times):8.1f} ms p50, {p95:.1f} ms p95, {times[-1]:.1f} ms at most")
    index.close()
    print(f"index             {index.file.stat().st_size / 1e6:8.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chats", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=4, help="of each chat")
    parser.add_argument("--answer", type=int, default=120, help="tokens of an answer, on average")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--no-fts5", action="store_true", help="as where SQLite has no full-text search")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(
            Path(folder),
            arguments.chats,
            arguments.turns,
            arguments.answer,
            arguments.queries,
            fts5=False if arguments.no_fts5 else None,
        )


if __name__ == "__main__":
    main()
