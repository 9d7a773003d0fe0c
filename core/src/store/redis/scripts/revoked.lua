-- A page of what is revoked, the first to end in front. KEYS[1] is the set of what is revoked until when, with the
-- number of news under "#", behind all others.
--
-- ARGV: time and name to continue after or twice "", at most so many, the number of news that is known or "".
-- Answer: {now, number of news, then each: what, until}: no page if that number is known. One more than asked says
-- that more follow.
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
local news = string.format('%.0f', tonumber(redis.call('ZSCORE', KEYS[1], '#') or 0))
if news == ARGV[4] then return { now, news } end
local start = redis.call('ZCOUNT', KEYS[1], '-inf', now)
if ARGV[1] ~= '' then
  if redis.call('ZSCORE', KEYS[1], ARGV[2]) == ARGV[1] then
    start = math.max(start, redis.call('ZRANK', KEYS[1], ARGV[2]) + 1)
  else
    -- It was prolonged or has ended: those of the same time may come again, none is left out.
    start = math.max(start, redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[1]))
  end
end
local answer = { now, news }
local page = redis.call('ZRANGE', KEYS[1], start, start + tonumber(ARGV[3]), 'WITHSCORES')
for i = 1, #page, 2 do
  if page[i] ~= '#' then
    answer[#answer + 1] = page[i]
    answer[#answer + 1] = page[i + 1]
  end
end
return answer
