-- What operators ask: what is known of an item, how much there is, and what the reader has not seen. Nothing here changes
-- an item. Each answer reads a bounded number of rows. See the head of functions.sql for the settings.

-- What is known of items, of whatever state, by their ids. `seen`: the snapshot up to which pointers are made; NULL: not
-- known. `waited_us`: since it vested; negative: until it vests. `left_us`: until its lease ends; negative: since that.
-- `is_locked`: another transaction has locked the row: that of its handler, or one that cancels it. `items_before`:
-- vested items of its queue that come before it, counted up to `before_max` in each kind and priority.
CREATE OR REPLACE FUNCTION fairlead.inspect(
  ids uuid[], seen pg_snapshot, before_max int,
  OUT id uuid, OUT app text, OUT tenant text, OUT zone text, OUT kind text, OUT priority smallint, OUT waited_us bigint,
  OUT age_us bigint, OUT leases int, OUT expired int, OUT unique_us bigint, OUT given bytea, OUT payload bytea,
  OUT args jsonb, OUT record bytea, OUT deaths int, OUT started smallint, OUT lease_id uuid, OUT left_us bigint,
  OUT state smallint, OUT kept_us bigint, OUT is_seen boolean, OUT is_locked boolean, OUT items_before int,
  OUT traceback bytea
) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now_us bigint := fairlead.now_us();
BEGIN
  RETURN QUERY SELECT i.id, i.app, i.tenant, i.zone, i.kind, i.priority, now_us - i.vesting_us, now_us - i.enqueued_us,
      i.leases, i.expired, i.unique_us, i.given, i.payload, i.args, i.record, i.deaths, i.started,
      i.lease_id, i.leased_until_us - now_us, i.state, i.keep_until_us - now_us, pg_visible_in_snapshot(i.xid, seen),
      i.state < 1 AND f.free IS NULL, b.items_before, i.traceback
    FROM unnest(ids) h(id) CROSS JOIN LATERAL (SELECT * FROM fairlead.items x WHERE x.id = h.id LIMIT 1) i
    LEFT JOIN LATERAL (
      SELECT true AS free FROM fairlead.items x WHERE x.id = i.id FOR KEY SHARE SKIP LOCKED) f ON true
    CROSS JOIN LATERAL (
      WITH RECURSIVE pair AS (
        (SELECT x.kind, x.priority FROM fairlead.items x
          WHERE (x.app, x.tenant, x.zone) = (i.app, i.tenant, i.zone) AND x.state = 0
          ORDER BY x.kind, x.priority LIMIT 1)
        UNION ALL
        SELECT n.kind, n.priority FROM pair p CROSS JOIN LATERAL (
          SELECT x.kind, x.priority FROM fairlead.items x
          WHERE (x.app, x.tenant, x.zone) = (i.app, i.tenant, i.zone) AND x.state = 0
            AND (x.kind, x.priority) > (p.kind, p.priority)
          ORDER BY x.kind, x.priority LIMIT 1) n)
      SELECT coalesce(sum(c.n), 0)::int AS items_before FROM pair p CROSS JOIN LATERAL (
        SELECT count(*) AS n FROM (
          SELECT FROM fairlead.items x
          WHERE (x.app, x.tenant, x.zone, x.kind, x.priority) = (i.app, i.tenant, i.zone, p.kind, p.priority)
            AND x.state = 0 AND x.leased_until_us <= now_us
            AND x.vesting_us <= CASE WHEN p.priority < i.priority THEN now_us ELSE least(i.vesting_us, now_us) END
            AND (p.priority < i.priority OR x.vesting_us < i.vesting_us OR x.id < i.id)
          ORDER BY x.vesting_us LIMIT before_max) y) c
      WHERE p.priority <= i.priority) b;
END $$;

-- How many items of each kind some queues hold: waiting, delayed and leased ones, of each queue the first `n`; and for how
-- long the oldest of those that could be leased has waited. `ord`: where the queue stands in the arrays.
CREATE OR REPLACE FUNCTION fairlead.depth_of(
  apps text[], tenants text[], zones text[], n int, OUT ord int, OUT kind text, OUT items int, OUT waits_us bigint
) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  now_us bigint := fairlead.now_us();
BEGIN
  RETURN QUERY SELECT q.ord::int, x.kind, count(*)::int,
      max(now_us - x.vesting_us) FILTER (WHERE x.vesting_us <= now_us AND x.leased_until_us <= now_us)
    FROM unnest(apps, tenants, zones) WITH ORDINALITY AS q(app, tenant, zone, ord)
    CROSS JOIN LATERAL (
      SELECT i.kind, i.vesting_us, i.leased_until_us FROM fairlead.items i
      WHERE (i.app, i.tenant, i.zone) = (q.app, q.tenant, q.zone) AND i.state = 0
      ORDER BY i.kind, i.priority, i.vesting_us LIMIT n) x
    GROUP BY 1, 2;
END $$;

-- The ids of the items of some queues that are delayed, of each queue the next `n` of each kind and priority to vest; of
-- these the first `n_all`.
CREATE OR REPLACE FUNCTION fairlead.delayed_ids(apps text[], tenants text[], zones text[], n int, n_all int) RETURNS uuid[]
  LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  now_us bigint := fairlead.now_us();
BEGIN
  RETURN ARRAY(WITH RECURSIVE queue AS (
      SELECT q.app, q.tenant, q.zone FROM unnest(apps, tenants, zones) AS q(app, tenant, zone)),
    pair AS (
      SELECT q.app, q.tenant, q.zone, f.kind, f.priority FROM queue q CROSS JOIN LATERAL (
        SELECT i.kind, i.priority FROM fairlead.items i
        WHERE (i.app, i.tenant, i.zone) = (q.app, q.tenant, q.zone) AND i.state = 0
        ORDER BY i.kind, i.priority LIMIT 1) f
      UNION ALL
      SELECT p.app, p.tenant, p.zone, f.kind, f.priority FROM pair p CROSS JOIN LATERAL (
        SELECT i.kind, i.priority FROM fairlead.items i
        WHERE (i.app, i.tenant, i.zone) = (p.app, p.tenant, p.zone) AND i.state = 0
          AND (i.kind, i.priority) > (p.kind, p.priority)
        ORDER BY i.kind, i.priority LIMIT 1) f)
    SELECT d.id FROM pair p CROSS JOIN LATERAL (
      SELECT i.id, i.vesting_us FROM fairlead.items i
      WHERE (i.app, i.tenant, i.zone, i.kind, i.priority) = (p.app, p.tenant, p.zone, p.kind, p.priority)
        AND i.state = 0 AND i.vesting_us > now_us AND i.leased_until_us <= now_us
      ORDER BY i.vesting_us LIMIT n) d
    ORDER BY d.vesting_us, d.id LIMIT n_all);
END $$;

-- How many items of each kind the queues of all tenants hold, of the first `n`: waiting, delayed and leased ones.
CREATE OR REPLACE FUNCTION fairlead.depth(n int, OUT kind text, OUT items int) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
  RETURN QUERY SELECT x.kind, count(*)::int FROM (
    SELECT i.kind FROM fairlead.items i WHERE i.state = 0
    ORDER BY i.app, i.tenant, i.zone, i.kind, i.priority, i.vesting_us LIMIT n) x GROUP BY 1 ORDER BY 1;
END $$;

-- Which queues hold an item that the snapshot `seen` sees, by where they stand in the arrays; each is read up to there.
CREATE OR REPLACE FUNCTION fairlead.seen_of(apps text[], tenants text[], zones text[], seen pg_snapshot, OUT ord int)
  RETURNS SETOF int LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
  RETURN QUERY SELECT q.ord::int FROM unnest(apps, tenants, zones) WITH ORDINALITY AS q(app, tenant, zone, ord)
    CROSS JOIN LATERAL (
      SELECT FROM fairlead.items i
      WHERE (i.app, i.tenant, i.zone) = (q.app, q.tenant, q.zone) AND i.state = 0 AND pg_visible_in_snapshot(i.xid, seen)
      ORDER BY i.kind, i.priority, i.vesting_us LIMIT 1) x;
END $$;

-- What waits longest, of the `n` rows that were enqueued or requeued first (`is_whole`: these are all); what the reader has
-- not seen, of the first `n`: items, their queues, and since when the oldest was enqueued, of those that never ran; dead
-- letters, and ended items whose ids or results are kept, each counted up to `n`.
CREATE OR REPLACE FUNCTION fairlead.totals(
  seen pg_snapshot, n int, OUT waits_us bigint, OUT is_whole boolean, OUT unseen_items int, OUT unseen_queues int,
  OUT unseen_us bigint, OUT dead_letters int, OUT kept int
) LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  now_us bigint := fairlead.now_us();
  next xid8 := pg_snapshot_xmax(seen);
  running xid8[] := ARRAY(SELECT pg_snapshot_xip(seen));
BEGIN
  SELECT max(now_us - x.vesting_us) FILTER (WHERE x.state = 0 AND x.leased_until_us <= now_us AND x.vesting_us <= now_us),
      count(*) < n INTO waits_us, is_whole
    FROM (SELECT * FROM fairlead.items i ORDER BY i.xid LIMIT n) x;
  SELECT count(*), count(DISTINCT (x.app, x.tenant, x.zone)), max(now_us - x.enqueued_us) FILTER (WHERE x.leases = 0)
    INTO unseen_items, unseen_queues, unseen_us
    FROM ((SELECT * FROM fairlead.items i WHERE i.xid >= next AND i.state < 1 ORDER BY i.xid LIMIT n)
      UNION ALL (SELECT * FROM fairlead.items i WHERE i.xid = ANY(running) AND i.xid < next AND i.state < 1
        ORDER BY i.xid LIMIT n)) x;
  SELECT count(*) INTO dead_letters FROM (SELECT FROM fairlead.items i WHERE i.state = 2 LIMIT n) x;
  SELECT count(*) INTO kept FROM (SELECT FROM fairlead.items i WHERE i.state = 1 LIMIT n) x;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fairlead FROM PUBLIC;
