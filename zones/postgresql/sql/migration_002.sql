-- Steps of workflows whose effects are in this database. What reads and writes these tables is in steps.sql.

CREATE TABLE fairlead.steps (
  run uuid NOT NULL,                    -- of the workflow's item
  segment int NOT NULL,                 -- how many checkpoints came before
  name text COLLATE "C" NOT NULL,
  occurrence int NOT NULL,              -- the n-th step of that name, from 0 on
  entry bytea NOT NULL,                 -- its answer; empty while its transaction is open
  PRIMARY KEY (run, segment, name, occurrence)
) WITH (fillfactor = 70, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

CREATE TABLE fairlead.fences (
  run uuid PRIMARY KEY,
  number bigint NOT NULL,               -- the lowest lease number of an attempt that may act here
  ended_under bigint                    -- the FLOOR under which the run has ended: the row is its tombstone
) WITH (fillfactor = 70, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX fences_ended ON fairlead.fences (ended_under) WHERE ended_under IS NOT NULL;

CREATE TABLE fairlead.floor (
  is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),   -- one row
  floor bigint NOT NULL                                       -- tombstones written under a lower one are gone
);
INSERT INTO fairlead.floor (floor) VALUES (0);
