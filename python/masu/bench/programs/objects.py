"""Objects, dictionaries, text and JSON, made and dropped. Prints a checksum of the texts."""

import json
import random
import zlib


def tree(draw, depth):
    node = {"name": f"node {draw.randrange(10000)}", "tags": [f"tag{draw.randrange(7) * i}" for i in range(5)]}
    if depth:
        node["children"] = [tree(draw, depth - 1) for _ in range(4)]
    return node


def work(seed):
    draw = random.Random(seed)
    text = json.dumps(tree(draw, 6))
    words = sorted("".join(draw.choices("abcdefgh ", k=40000)).split())
    places = {}
    for place, word in enumerate(words):
        places.setdefault(word, []).append(place)
    sums = zlib.crc32(text.encode()) + zlib.crc32(" ".join(places).encode())
    return sums + sum(len(word) * len(found) for word, found in places.items()) + len(json.loads(text)["name"])


print(sum(work(seed) for seed in range(12)))
