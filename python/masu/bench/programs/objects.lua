-- Tables, strings and closures, made and dropped. Prints how long all texts are.
local seed = 7
local function random(n)
  seed = (seed * 1103515245 + 12345) % 2147483648
  return seed % n
end

local function tree(depth)
  local node = {name = "node " .. random(10000), tags = {}}
  for i = 1, random(4) do node.tags[i] = "tag" .. i * random(7) end
  if depth > 0 then
    node.children = {}
    for i = 1, 4 do node.children[i] = tree(depth - 1) end
  end
  return node
end

local function weigh(node)
  local sum = #node.name
  for _, tag in ipairs(node.tags) do sum = sum + #tag end
  for _, child in ipairs(node.children or {}) do sum = sum + weigh(child) end
  return sum
end

local total = 0
for round = 1, 12 do
  total = total + weigh(tree(7))
  local words = {}
  for i = 1, 40000 do words[#words + 1] = string.rep(string.char(97 + random(26)), 1 + random(40)) end
  table.sort(words)
  total = total + #table.concat(words, " ")
end
print(total)
