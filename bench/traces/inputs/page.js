// What a page's script does: data from JSON, a list as HTML, sorting, closures, pixels. Prints a sum.
function item(i) {
  return { id: i, name: `item ${i}`, tags: [`tag${i % 7}`, `tag${i % 13}`], at: new Date(i * 1e7), price: i * 1.25 };
}
let total = 0;
for (let round = 0; round < 12; round++) {
  const data = JSON.parse(JSON.stringify(Array.from({ length: 3000 }, (_, i) => item(i))));
  const byTag = new Map();
  for (const d of data)
    for (const t of d.tags) byTag.set(t, [...(byTag.get(t) || []).slice(-50), d]);
  const html = data.map((d) => `<li class="${d.tags.join(" ")}">${d.name.replace(/\d+/, (n) => n * 2)}</li>`).join("\n");
  total += html.split("<li").length;
  for (const found of byTag.values()) total += found.sort((a, b) => b.price - a.price)[0].id;
  const pixels = new Uint8ClampedArray(640 * 480 * 4);
  for (let i = 0; i < pixels.length; i += 4) pixels[i] = (i * round) & 255;
  total += pixels[4000];
}
print(total);
