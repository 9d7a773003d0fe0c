-- Removes a key of another type: somebody's hand has been here, and nothing can be done with it.
local function need_type(name, type)
  local found = redis.call('TYPE', name).ok
  if found ~= type and found ~= 'none' then redis.call('DEL', name) end
end

