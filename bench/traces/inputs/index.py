"""A word index of a licence, written as JSON and read again."""

import json
import re

text = open("/usr/share/common-licenses/Apache-2.0").read()
places = {}
for number, line in enumerate(text.splitlines(), 1):
    for word in re.findall(r"[a-z]+", line.lower()):
        places.setdefault(word, []).append({"line": number, "start": line[:20].strip()})
common = sorted(places, key=lambda word: (-len(places[word]), word))
back = json.loads(json.dumps({word: places[word] for word in common}))
print(len(back), sum(len(found) for found in back.values()), *common[:5])
