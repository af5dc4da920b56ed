-- Which items were cancelled in the last hour. What writes and reads the table is in operations.sql.

CREATE TABLE fairlead.cancelled (
  id uuid NOT NULL,                     -- of the item; twice, if its name was used again
  app text COLLATE "C" NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  zone text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  leases int NOT NULL,                  -- how often it had been leased
  cancelled_us bigint NOT NULL
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX cancelled_ids ON fairlead.cancelled (id);
CREATE INDEX cancelled_times ON fairlead.cancelled (cancelled_us);
