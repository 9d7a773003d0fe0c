-- Shortens all leases of a lost edge under their own names. Nothing happens if a higher link number of
-- it is known, in a hold, or to what has been renewed since the link broke.
--
-- ARGV: edge, link number, broken since, grace in ms, most leases to shorten, then ttl and grace in ms of
-- each ttl whose leases have another grace.
-- Answer: {now, how many are shortened, now or before, "1" if more may be left}.
local edge, link, broken, usual, portion = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local graces = {}
for i = 6, #ARGV, 2 do graces[tonumber(ARGV[i])] = tonumber(ARGV[i + 1]) end
local known = redis.call('HGET', shard, 'link:' .. edge)
if known and known > link then return { int(now), '0', '0' } end
here({ edge_key(edge) })
local lost, written = 0, 0
for _, lease in ipairs(try('SMEMBERS', edge_key(edge)) or {}) do
  if written == portion then return { int(now), int(lost), '1' } end
  local found = redis.call('ZSCORE', LEASES, lease)
  if found then
    local deadline, ttl = tonumber(found), ttl_of(lease)
    local by, _, set_to = note_of(lease)
    if by == 'edge_lost' and set_to == deadline then
      lost = lost + 1
    elseif deadline > now and deadline <= broken + ttl and is_settled() and not is_held(ttl) then
      local brought = math.min(deadline, now + (graces[ttl] or usual))
      redis.call('ZADD', LEASES, brought, lease)
      write_note(lease, 'edge_lost', deadline, brought)
      lost, written = lost + 1, written + 1
    end
  end
end
return { int(now), int(lost), '0' }
