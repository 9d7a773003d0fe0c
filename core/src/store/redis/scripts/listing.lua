-- A page of the sorted set KEYS[1], the lowest score first.
--
-- ARGV: score and member to continue after or twice "", at most so many.
-- Answer: {now, then each: member, score}. One more than asked says that more follow.
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
local start = 0
if ARGV[1] ~= '' then
  if redis.call('ZSCORE', KEYS[1], ARGV[2]) == ARGV[1] then
    start = redis.call('ZRANK', KEYS[1], ARGV[2]) + 1
  else
    -- It was moved or removed: those of the same score may come again, none is left out.
    start = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[1])
  end
end
local answer = redis.call('ZRANGE', KEYS[1], start, start + tonumber(ARGV[3]), 'WITHSCORES')
table.insert(answer, 1, now)
return answer
