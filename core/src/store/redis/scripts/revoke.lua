-- Revokes, and forgets what has ended, a portion at a time. KEYS[1] is the set of what is revoked until when.
--
-- ARGV: most to forget, then each: until, what. Answer: {now}.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
need_type(KEYS[1], 'zset')
local ended = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, what in ipairs(ended) do redis.call('ZREM', KEYS[1], what) end
for i = 2, #ARGV, 2 do
  if tonumber(ARGV[i]) > now then redis.call('ZADD', KEYS[1], 'GT', ARGV[i], ARGV[i + 1]) end
end
return { string.format('%.0f', now) }
