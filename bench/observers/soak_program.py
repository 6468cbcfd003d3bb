"""A service in Python, as the soak runs it: a cache of documents that are read, changed, searched and dropped.

Takes lines "SEED REQUESTS SIZE" and answers each with a digest, which depends on nothing else."""

import json
import random
import re
import sys
import threading

DOCUMENTS = 3000
cache = {}


def document(draw, size):
    words = ["".join(draw.choices("abcdefgh", k=draw.randrange(2, 12))) for _ in range(size)]
    return json.dumps({"title": words[0], "words": words, "counts": {word: len(word) for word in words}})


def request(draw, size):
    key = draw.randrange(DOCUMENTS)
    kind = draw.random()
    if kind < 0.3 or key not in cache:
        cache[key] = document(draw, size)
    elif kind < 0.4:
        del cache[key]
        return 1
    elif kind < 0.7:
        found = json.loads(cache[key])
        found["words"].sort()
        return len(" ".join(found["words"]))
    else:
        return len(re.findall(r"[aeg]+h", cache[key]))
    return len(cache[key])


def serve(seed, requests, size, sums):
    draw = random.Random(seed)
    sums[seed] = sum(request(draw, draw.randrange(size // 2, size)) for _ in range(requests))


for line in sys.stdin:
    seed, requests, size = map(int, line.split())
    sums = {}
    threads = [threading.Thread(target=serve, args=(seed + i, requests // 2, size, sums)) for i in range(2)]
    for thread in threads:  # one after the other, so that the digest is the same
        thread.start()
        thread.join()
    print(sum(sums.values()), flush=True)
