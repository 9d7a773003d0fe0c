-- The note of one edge: which core sees it, or since when nobody does. KEYS[1] is the hash of all edges.
--
-- ARGV: "link", "unlink" or "forget", edge, link number, name and, to link, core; or "drain", edge or nothing for all of
-- that name, nothing, name; or "list".
-- Answer: {now, "1" if accepted}; to "list" {now, then each edge and its note}.
-- A note is JSON: name, link, core, heard and, if it is broken, broken, and if it is to go, drain; times as
-- text in ms.
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
local verb, edge, link = ARGV[1], ARGV[2], ARGV[3]
-- A note that is none is as if it were lost: its edge writes it again.
local function note_of(text)
  local is_json, note = pcall(cjson.decode, text)
  local is_note = is_json and type(note) == 'table' and type(note.name) == 'string' and type(note.link) == 'string'
  return is_note and note or nil
end

if verb == 'list' then
  local answer = { now }
  for _, part in ipairs(redis.call('HGETALL', KEYS[1])) do answer[#answer + 1] = part end
  return answer
end
need_type(KEYS[1], 'hash')
if verb == 'drain' then
  local notes = redis.call('HGETALL', KEYS[1])
  for place = 1, #notes, 2 do
    local note = note_of(notes[place + 1])
    if note and note.name == ARGV[4] and (edge == '' or edge == notes[place]) then
      note.drain = note.drain or now
      redis.call('HSET', KEYS[1], notes[place], cjson.encode(note))
    end
  end
  return { now, '1' }
end
local text = redis.call('HGET', KEYS[1], edge)
local known = text and note_of(text)
local accepted = not known or known.link <= link
-- A run of an edge has one name: whoever speaks for it under another is not that edge.
if known and known.name ~= ARGV[4] then accepted = false end

local function write(note)
  redis.call('HSET', KEYS[1], edge, cjson.encode(note))
end

if verb == 'link' and accepted then
  -- The same number again refreshes the note but mends no broken link: that takes a higher one.
  if known and known.link == link then
    known.heard = now
    write(known)
  else
    write({ name = ARGV[4], link = link, core = ARGV[5], heard = now, drain = known and known.drain or nil })
  end
elseif verb == 'unlink' and known and accepted then
  local since = known.link == link and known.broken or now
  known.link, known.heard, known.broken = link, now, since
  write(known)
elseif verb == 'forget' and known and accepted then
  redis.call('HDEL', KEYS[1], edge)
end
return { now, accepted and '1' or '0' }
