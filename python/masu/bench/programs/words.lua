-- Words by key in tables of tables, concatenated and sorted. Prints how many there are, and the first.
for round = 1, 3 do
  local all = {}
  for i = 1, 200000 do
    local key = "key " .. i * 7919 % 50021
    all[key] = all[key] or {count = 0, words = {}}
    all[key].count = all[key].count + 1
    table.insert(all[key].words, "word " .. i)
  end
  local lines = {}
  for key, found in pairs(all) do lines[#lines + 1] = key .. ": " .. table.concat(found.words, ",") end
  table.sort(lines)
  print(#lines, lines[1])
end
