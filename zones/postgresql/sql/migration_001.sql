-- The first schema: the store, its items, and the doorbell. What reads and writes them is in functions.sql.

CREATE SCHEMA fairlead;

CREATE TABLE fairlead.store (
  is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),   -- one row
  id uuid NOT NULL DEFAULT gen_random_uuid(),                 -- by it an application knows its own store
  version int NOT NULL                                        -- the last migration that was made
);

CREATE TABLE fairlead.items (
  id uuid PRIMARY KEY,                  -- begins with the time; of an item with a given id, a hash of that and its queue
  app text COLLATE "C" NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  zone text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  priority smallint NOT NULL,
  vesting_us bigint NOT NULL,           -- microseconds since the epoch by the server's clock, as all times here
  state smallint NOT NULL DEFAULT 0,    -- 0 waits or is leased; 1 has ended, and its id or result is kept; 2 dead letter
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),  -- of the transaction that enqueued it, or last made it vest earlier
  lease_id uuid,                        -- stays after the lease has expired; NULL: its holder has ended the lease
  leased_until_us bigint NOT NULL DEFAULT 0,
  leases int NOT NULL DEFAULT 0,        -- how often it was leased
  expired int NOT NULL DEFAULT 0,       -- how many of these leases expired
  session uuid,                         -- of the worker that claims it
  enqueued_us bigint NOT NULL,
  unique_us bigint NOT NULL DEFAULT 0,  -- for how long its given id stays taken after its end
  taken_until_us bigint,                -- of one that has ended: from when its id can be enqueued again
  keep_until_us bigint,                 -- of one that has ended: from when its row is deleted; of a dead letter: since when
  given bytea,                          -- the given id: 1 and bytes, or 2 and text
  payload bytea,                        -- msgpack; NULL: `args` is the payload
  args jsonb,
  record bytea                          -- its history; of one that has ended its result; of a dead letter why it is one
) WITH (
  fillfactor = 70,                      -- a lease is written beside the row that it replaces
  vacuum_truncate = off,                -- truncation locks the table
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 20000
);

-- Kind and priority stand before time: what is delayed, paused, at its limit or unknown stands in front of nothing else.
-- A lease is in no index, so taking one changes none.
CREATE INDEX items_vest ON fairlead.items (app, tenant, zone, kind, priority, vesting_us) WHERE state = 0;
CREATE INDEX items_new ON fairlead.items (xid);
CREATE INDEX items_kept ON fairlead.items (state, keep_until_us) WHERE state > 0;
-- The dead letters of a queue. Written so, the condition lets no statement choose between this index and items_kept.
CREATE INDEX items_dead ON fairlead.items (app, tenant, zone, keep_until_us) WHERE state - 2 = 0;
CREATE INDEX items_claimed ON fairlead.items (session) WHERE session IS NOT NULL;

CREATE TABLE fairlead.doorbell (
  is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
  rings boolean NOT NULL
);
INSERT INTO fairlead.doorbell (rings) VALUES (false);
