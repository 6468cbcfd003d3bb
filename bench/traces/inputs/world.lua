-- A small game for minetestserver: some kinds of node, grass that spreads, creatures that look for their way. It has a part
-- of a world made, plays there for a while, and ends.
for _, name in ipairs({"stone", "dirt", "grass", "water", "river", "sand"}) do
  core.register_node("walk:" .. name, {description = name, tiles = {name .. ".png"}, groups = {soft = 1}})
end
for alias, name in pairs({stone = "stone", water_source = "water", river_water_source = "river"}) do
  core.register_alias("mapgen_" .. alias, "walk:" .. name)
end
core.register_biome({name = "plain", node_top = "walk:dirt", depth_top = 1, node_filler = "walk:sand", depth_filler = 2})

core.register_abm({
  nodenames = {"walk:dirt"}, neighbors = {"air"}, interval = 1, chance = 20,
  action = function(at) core.set_node(at, {name = "walk:grass"}) end,
})
core.register_entity("walk:creature", {
  initial_properties = {physical = true, collisionbox = {-0.4, -0.4, -0.4, 0.4, 0.4, 0.4}},
  on_step = function(self)
    local at = self.object:get_pos()
    local way = core.find_path(at, vector.add(at, vector.new(math.random(-6, 6), 0, math.random(-6, 6))), 6, 2, 4)
    self.object:set_velocity(way and way[2] and vector.direction(at, way[2]) or vector.new(math.random(-2, 2), 3, 0))
    self.object:set_acceleration(vector.new(0, -9, 0))
  end,
})

core.after(0, function()
  local from, to = vector.new(-32, -32, -32), vector.new(47, 47, 47)
  for x = -1, 1 do
    for z = -1, 1 do core.forceload_block(vector.new(x * 16, 8, z * 16), true) end
  end
  core.emerge_area(from, to, function(_, _, left)
    if left > 0 then return end
    for i = 1, 40 do core.add_entity(vector.new(i % 8 * 4 - 16, 20, i - 20), "walk:creature") end
    core.after(2, core.request_shutdown)
  end)
end)
