-- Claims of workers, and which leases ended while their handlers ran. What reads and writes these is in sessions.sql.

ALTER TABLE fairlead.items
  ADD COLUMN started smallint NOT NULL DEFAULT 0,  -- 1 its handler has started; 2 alone; 3 a lease in which it ran alone expired
  ADD COLUMN deaths int NOT NULL DEFAULT 0;        -- how many leases in a row expired after their handlers had started

CREATE TABLE fairlead.sessions (        -- of workers that claim items; items.session is its id
  id uuid PRIMARY KEY,
  worker bytea NOT NULL,                -- which incarnation of a worker
  beat bigint NOT NULL DEFAULT 0        -- counts its heartbeats
) WITH (fillfactor = 50, vacuum_truncate = off);

-- Their arguments or answers have become longer: functions.sql and the other files make them again. The programs of the
-- version before name what they read, and leave out arguments that have defaults now.
DROP FUNCTION IF EXISTS fairlead.dequeue(
  text[], text[], text[], int[], int[], text[], smallint[], bigint[], text[], int[], uuid, bigint);
DROP FUNCTION IF EXISTS fairlead.read_held(uuid[], uuid[]);
DROP FUNCTION IF EXISTS fairlead.extend(uuid[], uuid[], bigint);
DROP FUNCTION IF EXISTS fairlead.requeue(uuid[], uuid[], bigint[], bytea[]);
DROP FUNCTION IF EXISTS fairlead.read_items(uuid[], boolean);
DROP FUNCTION IF EXISTS fairlead.inspect(uuid[], pg_snapshot, int);
