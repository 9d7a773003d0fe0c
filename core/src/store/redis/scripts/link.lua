-- Writes the link number of an edge into a shard, if it is not below the known one; or removes it.
--
-- ARGV: edge, link number, "set" or "remove". Answer: {now}.
local field = 'link:' .. ARGV[1]
local known = redis.call('HGET', shard, field)
if not known or known <= ARGV[2] then
  if ARGV[3] == 'set' then
    redis.call('HSET', shard, field, ARGV[2])
  else
    redis.call('HDEL', shard, field)
  end
end
return { int(now) }
