-- Calls every command that is used, on keys that are there for no longer than this takes: whoever may not is found
-- out at start, not half-way through a commit.
--
-- KEYS[1]: what the keys begin with. Answer: {each command that is refused to the user}.
local refused = {}
local function may(command, ...)
  local answer = redis.pcall(command, ...)
  local words = type(answer) == 'table' and answer.err or ''
  if string.find(words, "can't run this command", 1, true) or string.find(words, 'permission', 1, true) then
    refused[#refused + 1] = command
  end
end

local hash, zset, set, stream = KEYS[1] .. ':hash', KEYS[1] .. ':zset', KEYS[1] .. ':set', KEYS[1] .. ':stream'
may('DEL', hash, zset, set, stream)
if #refused > 0 then return refused end
may('EXISTS', hash)
may('TYPE', hash)
may('TIME')
may('INFO', 'server')
may('HSET', hash, 'field', '1')
may('HSETNX', hash, 'field', '1')
may('HGET', hash, 'field')
may('HMGET', hash, 'field')
may('HGETALL', hash)
may('HEXISTS', hash, 'field')
may('HLEN', hash)
may('HSCAN', hash, '0')
may('HDEL', hash, 'field')
may('ZADD', zset, '1', 'member')
may('ZSCORE', zset, 'member')
may('ZMSCORE', zset, 'member')
may('ZRANK', zset, 'member')
may('ZCARD', zset)
may('ZCOUNT', zset, '-inf', '+inf')
may('ZRANGE', zset, '0', '0')
may('ZRANGEBYLEX', zset, '-', '+')
may('ZRANGEBYSCORE', zset, '-inf', '+inf')
may('ZSCAN', zset, '0')
may('ZREMRANGEBYLEX', zset, '(a', '(a')
may('ZREM', zset, 'member')
may('SADD', set, 'member')
may('SISMEMBER', set, 'member')
may('SMEMBERS', set)
may('SCARD', set)
may('SREM', set, 'member')
may('XADD', stream, '1-0', 'field', '1')
may('XRANGE', stream, '-', '+')
may('XREAD', 'COUNT', '1', 'STREAMS', stream, '0')
may('XDEL', stream, '1-0')
redis.pcall('DEL', hash, zset, set, stream)
return refused
