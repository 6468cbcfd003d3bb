-- A ledger: lines of text become tables, sums by account, a sorted report. Prints its length.
local seed = 7
local function random(n)
  seed = (seed * 1103515245 + 12345) % 2147483648
  return seed % n
end

local lines = {}
for i = 1, 3000 do
  lines[i] = string.format("2024-%02d-%02d;account %d;%d.%02d;%s", random(12) + 1, random(28) + 1, random(150), random(900),
    random(100), ("note %d "):rep(random(4)):format(i, i, i))
end

local accounts = {}
for _, line in ipairs(lines) do
  local day, account, amount, note = line:match("^(.-);(.-);(.-);(.*)$")
  local entry = {day = day, amount = tonumber(amount), note = note:upper(), tags = {}}
  for tag in note:gmatch("%d+") do entry.tags[#entry.tags + 1] = tag end
  accounts[account] = accounts[account] or {}
  table.insert(accounts[account], entry)
end

local report = {}
for account, entries in pairs(accounts) do
  table.sort(entries, function(a, b) return a.day < b.day end)
  local sum = 0
  for _, entry in ipairs(entries) do
    sum = sum + entry.amount
    report[#report + 1] = ("%s %s %8.2f %s"):format(account, entry.day, sum, table.concat(entry.tags, ","))
  end
end
table.sort(report)
print(#table.concat(report, "\n"))
