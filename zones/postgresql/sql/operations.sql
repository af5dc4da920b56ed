-- What applications and operators do with the items of a queue: show, count, cancel; retry and discard dead letters. See
-- the head of functions.sql for the settings. `state + 0 = 2` stands where no partial index must be a choice beside the id.

-- The items of these ids, of whatever state, in the order of `ids`. `in_us`: in how long it can be leased; negative: it
-- could be leased since. `ended_us`: of a dead letter, when it became one.
CREATE OR REPLACE FUNCTION fairlead.read_items(
  ids uuid[], with_payloads boolean,
  OUT id uuid, OUT app text, OUT tenant text, OUT zone text, OUT kind text, OUT priority smallint, OUT in_us bigint,
  OUT age_us bigint, OUT leases int, OUT expired int, OUT unique_us bigint, OUT given bytea, OUT payload bytea,
  OUT args jsonb, OUT record bytea, OUT deaths int, OUT started smallint, OUT state smallint, OUT lease_id uuid,
  OUT ended_us bigint
) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now_us bigint := fairlead.now_us();
BEGIN
  RETURN QUERY SELECT i.id, i.app, i.tenant, i.zone, i.kind, i.priority, greatest(i.vesting_us, i.leased_until_us) - now_us,
      now_us - i.enqueued_us, i.leases, i.expired, i.unique_us, i.given,
      CASE WHEN with_payloads THEN i.payload END, CASE WHEN with_payloads THEN i.args END, i.record, i.deaths,
      i.started, i.state, i.lease_id, i.keep_until_us
    FROM unnest(ids) WITH ORDINALITY AS h(id, ord)
    CROSS JOIN LATERAL (SELECT * FROM fairlead.items x WHERE x.id = h.id LIMIT 1) i ORDER BY h.ord;
END $$;

-- The ids of the first `n` items of a queue, by priority, and by the time from which they can be leased; only those that
-- can be leased now, or all. With more than a thousand leased items of a kind and priority, some may be missing.
CREATE OR REPLACE FUNCTION fairlead.first_ids(app text, tenant text, zone text, n int, only_vested boolean) RETURNS uuid[]
  LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  until_us bigint := CASE WHEN only_vested THEN fairlead.now_us() ELSE 9223372036854775807 END;
BEGIN
  RETURN ARRAY(WITH RECURSIVE pair AS (
      (SELECT i.kind, i.priority FROM fairlead.items i
        WHERE (i.app, i.tenant, i.zone) = (first_ids.app, first_ids.tenant, first_ids.zone) AND i.state = 0
        ORDER BY i.kind, i.priority LIMIT 1)
      UNION ALL
      SELECT f.* FROM pair p CROSS JOIN LATERAL (
        SELECT i.kind, i.priority FROM fairlead.items i
        WHERE (i.app, i.tenant, i.zone) = (first_ids.app, first_ids.tenant, first_ids.zone) AND i.state = 0
          AND (i.kind, i.priority) > (p.kind, p.priority)
        ORDER BY i.kind, i.priority LIMIT 1) f)
    SELECT c.id FROM pair p CROSS JOIN LATERAL (
      SELECT i.id, greatest(i.vesting_us, i.leased_until_us) AS from_us FROM fairlead.items i
      WHERE (i.app, i.tenant, i.zone, i.kind, i.priority)
          = (first_ids.app, first_ids.tenant, first_ids.zone, p.kind, p.priority) AND i.state = 0
        AND i.vesting_us <= until_us AND i.leased_until_us <= until_us
      ORDER BY i.vesting_us LIMIT n + 1000) c
    ORDER BY p.priority, c.from_us, c.id LIMIT n);
END $$;

-- How many items of each kind a queue holds: waiting, delayed and leased ones. Of a kind and priority, at most `n` count.
CREATE OR REPLACE FUNCTION fairlead.count_items(
  app text, tenant text, zone text, n int, OUT kind text, OUT items int
) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY WITH RECURSIVE pair AS (
      (SELECT i.kind, i.priority FROM fairlead.items i
        WHERE (i.app, i.tenant, i.zone) = (count_items.app, count_items.tenant, count_items.zone) AND i.state = 0
        ORDER BY i.kind, i.priority LIMIT 1)
      UNION ALL
      SELECT f.* FROM pair p CROSS JOIN LATERAL (
        SELECT i.kind, i.priority FROM fairlead.items i
        WHERE (i.app, i.tenant, i.zone) = (count_items.app, count_items.tenant, count_items.zone) AND i.state = 0
          AND (i.kind, i.priority) > (p.kind, p.priority)
        ORDER BY i.kind, i.priority LIMIT 1) f)
    SELECT p.kind, sum(c.some)::int FROM pair p CROSS JOIN LATERAL (
      SELECT count(*) AS some FROM (
        SELECT FROM fairlead.items i
        WHERE (i.app, i.tenant, i.zone, i.kind, i.priority)
            = (count_items.app, count_items.tenant, count_items.zone, p.kind, p.priority) AND i.state = 0
        ORDER BY i.vesting_us LIMIT n) x) c
    GROUP BY p.kind;
END $$;

-- Delete an item of a queue, leased or not; with `force` a dead letter too. The first of `ids` that is one is deleted.
-- Waits for a transaction that has locked it: that of its handler, for example. Returns whether there was one. That it
-- was cancelled is known for an hour, if the transaction commits: no shard is told, so `within` and SQL leave it here.
CREATE OR REPLACE FUNCTION fairlead.cancel_item(app text, tenant text, zone text, ids uuid[], force boolean) RETURNS boolean
  LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  one uuid;
BEGIN
  FOREACH one IN ARRAY ids LOOP
    WITH gone AS (
      DELETE FROM fairlead.items i WHERE i.id = one AND (i.state < 1 OR force AND i.state + 0 = 2)
        AND (i.app, i.tenant, i.zone) = (cancel_item.app, cancel_item.tenant, cancel_item.zone)
      RETURNING i.id, i.app, i.tenant, i.zone, i.kind, i.leases)
    INSERT INTO fairlead.cancelled (id, app, tenant, zone, kind, leases, cancelled_us)
      SELECT g.id, g.app, g.tenant, g.zone, g.kind, g.leases, fairlead.now_us() FROM gone g;
    IF FOUND THEN
      RETURN true;
    END IF;
  END LOOP;
  RETURN false;
END $$;

-- Cancel an item: what a program in any language calls, in its own transaction. It is named by the `item_id` that it was
-- given, or by the `id` that `enqueue` returned. Returns whether there was one: false: it has ended, or is a dead letter.
CREATE OR REPLACE FUNCTION fairlead.cancel(
  app text, tenant text, item_id text DEFAULT NULL, zone text DEFAULT 'queue', id uuid DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF num_nonnulls(item_id, id) <> 1 THEN
    RAISE 'fairlead.cancel: give either the item_id or the id' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  RETURN fairlead.cancel_item(app, tenant, zone,
    ARRAY[coalesce(id, fairlead.id_of(app, tenant, zone, '\x02'::bytea || convert_to(item_id, 'UTF8')))], false);
END $$;

-- Those of some items that were cancelled in the last hour or so, the latest first. `ago_us`: for how long.
CREATE OR REPLACE FUNCTION fairlead.cancelled_items(
  ids uuid[], OUT id uuid, OUT app text, OUT tenant text, OUT zone text, OUT kind text, OUT leases int, OUT ago_us bigint
) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  now_us bigint := fairlead.now_us();
BEGIN                                   -- ordered by an expression, for which no index is a choice
  RETURN QUERY SELECT c.id, c.app, c.tenant, c.zone, c.kind, c.leases, now_us - c.cancelled_us
    FROM fairlead.cancelled c WHERE c.id = ANY(ids) ORDER BY now_us - c.cancelled_us;
END $$;

-- The ids of the next `n` dead letters of a queue (`app` NULL: of all queues) behind one, oldest first.
CREATE OR REPLACE FUNCTION fairlead.dead_ids(app text, tenant text, zone text, after_us bigint, after_id uuid, n int)
  RETURNS uuid[] LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
  IF app IS NULL THEN
    RETURN ARRAY(SELECT i.id FROM fairlead.items i WHERE i.state = 2 AND (i.keep_until_us, i.id) > (after_us, after_id)
      ORDER BY i.keep_until_us, i.id LIMIT n);
  END IF;
  RETURN ARRAY(SELECT i.id FROM fairlead.items i
    WHERE (i.app, i.tenant, i.zone) = (dead_ids.app, dead_ids.tenant, dead_ids.zone) AND i.state - 2 = 0
      AND (i.keep_until_us, i.id) > (after_us, after_id)
    ORDER BY i.keep_until_us, i.id LIMIT n);
END $$;

-- Put dead letters back into their queues, due now, with the histories `records`. Left out are those that became dead
-- letters at another time than `ended_us`: they were retried meanwhile. Returns the ids of the others.
CREATE OR REPLACE FUNCTION fairlead.retry_dead_letters(ids uuid[], ended_us bigint[], records bytea[]) RETURNS uuid[]
  LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  now_us bigint := fairlead.now_us();
  done uuid[] := '{}';
  one record;
BEGIN
  FOR one IN SELECT d.* FROM unnest(ids, ended_us, records) d(id, ended_us, record) ORDER BY d.id LOOP
    UPDATE fairlead.items i SET state = 0, xid = pg_current_xact_id(), vesting_us = now_us, leased_until_us = 0, expired = 0,
      keep_until_us = NULL, record = one.record WHERE i.id = one.id AND i.state + 0 = 2 AND i.keep_until_us = one.ended_us;
    IF FOUND THEN
      done := done || one.id;
    END IF;
  END LOOP;
  PERFORM fairlead.ring();
  RETURN done;
END $$;

-- Delete dead letters for good, but for those that `retry_dead_letters` would leave out. Returns the ids of those deleted.
CREATE OR REPLACE FUNCTION fairlead.discard_dead_letters(ids uuid[], ended_us bigint[]) RETURNS uuid[] LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  done uuid[] := '{}';
  one record;
BEGIN
  FOR one IN SELECT d.* FROM unnest(ids, ended_us) d(id, ended_us) ORDER BY d.id LOOP
    DELETE FROM fairlead.items i WHERE i.id = one.id AND i.state + 0 = 2 AND i.keep_until_us = one.ended_us;
    IF FOUND THEN
      done := done || one.id;
    END IF;
  END LOOP;
  RETURN done;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fairlead FROM PUBLIC;
