-- What programs call. An upgrade replaces these, which keeps what was granted; a migration drops one whose arguments or
-- answer change.
--
-- Every statement has one index that it can use, whatever the statistics say: so plans are generic, and tables are not
-- scanned. A scan that cannot be avoided counts as so expensive then that its plan would be compiled each time, which
-- takes 10 ms: hence `jit = off`. `state < 1` stands where the partial index items_vest must not be one of two.

-- Its names are bound when it is made. So it needs no search_path, and is made part of the expression that calls it: a
-- call of its own takes 30 us.
CREATE OR REPLACE FUNCTION fairlead.now_us() RETURNS bigint LANGUAGE sql VOLATILE
  RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- The id of the store, for a program that must know whether a connection leads to its own.
CREATE OR REPLACE FUNCTION fairlead.store_id() RETURNS uuid LANGUAGE sql STABLE SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp
  RETURN (SELECT s.id FROM fairlead.store s);

-- Ring the doorbell, if it is on: notifications make the commits of all users of the cluster go one by one. It has the
-- settings of the function that calls it.
CREATE OR REPLACE FUNCTION fairlead.ring() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_catalog.pg_notify('fairlead', '') FROM fairlead.doorbell d WHERE d.rings;
END $$;

-- Enqueue items, in the order of their ids: two transactions that enqueue the same ones do not deadlock. An id that is
-- being inserted by another transaction waits for its end. Returns, for each, where it stood in the arrays, and what
-- was found: NULL: it is enqueued; 0 an item of that id waits or runs; 1 one has ended and its id is taken; 2 it is a
-- dead letter. Rings the doorbell if it is on.
CREATE OR REPLACE FUNCTION fairlead.put(
  ids uuid[], apps text[], tenants text[], zones text[], kinds text[], priorities smallint[], delays_us bigint[],
  uniques_us bigint[], givens bytea[], payloads bytea[], all_args jsonb[], records bytea[], OUT ord int, OUT found smallint
) RETURNS SETOF record LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now_us bigint := fairlead.now_us();
  made uuid[];
BEGIN
  WITH put AS (
    INSERT INTO fairlead.items AS i (id, app, tenant, zone, kind, priority, vesting_us, enqueued_us, unique_us, given, payload, args, record)
      SELECT n.id, n.app, n.tenant, n.zone, n.kind, n.priority, now_us + n.delay_us, now_us, n.unique_us, n.given, n.payload, n.args, n.record
      FROM unnest(ids, apps, tenants, zones, kinds, priorities, delays_us, uniques_us, givens, payloads, all_args, records)
        AS n(id, app, tenant, zone, kind, priority, delay_us, unique_us, given, payload, args, record)
      ORDER BY n.id
      ON CONFLICT (id) DO UPDATE SET
        (state, xid, kind, priority, vesting_us, enqueued_us, unique_us, payload, args, record, lease_id, leased_until_us,
         leases, expired, started, deaths, session, taken_until_us, keep_until_us)
        = (0, pg_current_xact_id(), excluded.kind, excluded.priority, excluded.vesting_us, excluded.enqueued_us,
           excluded.unique_us, excluded.payload, excluded.args, excluded.record, NULL, 0, 0, 0, 0, 0, NULL, NULL, NULL)
        WHERE i.state = 1 AND i.taken_until_us <= now_us
      RETURNING i.id)
  SELECT array_agg(p.id) INTO made FROM put p;
  IF made IS NOT NULL THEN
    PERFORM fairlead.ring();
  END IF;
  -- What was made is not read: two SERIALIZABLE transactions that read and write the same index page would conflict.
  RETURN QUERY
    SELECT n.ord::int, CASE WHEN n.id = ANY(made) THEN NULL ELSE coalesce(
      (SELECT i.state FROM fairlead.items i WHERE i.id = n.id LIMIT 1), 0::smallint) END
    FROM unnest(ids) WITH ORDINALITY AS n(id, ord);
END $$;

-- Enqueue one item, and return what `put` does of it. Most transactions of users enqueue one. Without arrays, and without
-- a set of rows for an answer, it takes 26 us where `put` took 38, or 154 for the client where `put` took 173. If its id
-- is there, it goes the long way.
CREATE OR REPLACE FUNCTION fairlead.put_one(
  id uuid, app text, tenant text, zone text, kind text, priority smallint, delay_us bigint, unique_us bigint,
  given bytea, payload bytea, args jsonb, record bytea
) RETURNS smallint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  now_us bigint := fairlead.now_us();
BEGIN
  INSERT INTO fairlead.items (id, app, tenant, zone, kind, priority, vesting_us, enqueued_us, unique_us, given, payload, args, record)
    VALUES (id, app, tenant, zone, kind, priority, now_us + delay_us, now_us, unique_us, given, payload, args, record)
    ON CONFLICT ON CONSTRAINT items_pkey DO NOTHING;
  IF FOUND THEN
    PERFORM fairlead.ring();
    RETURN NULL;
  END IF;
  RETURN (SELECT p.found FROM fairlead.put(ARRAY[id], ARRAY[app], ARRAY[tenant], ARRAY[zone], ARRAY[kind], ARRAY[priority],
    ARRAY[delay_us], ARRAY[unique_us], ARRAY[given], ARRAY[payload], ARRAY[args], ARRAY[record]) p);
END $$;

-- Enqueue one item: what a program in any language calls, in its own transaction. `args` is the payload as JSON, or
-- `payload` the same as msgpack. Returns the id, and 'enqueued', or why nothing was changed: 'present', 'completed',
-- 'dead letter'.
CREATE OR REPLACE FUNCTION fairlead.enqueue(
  app text, tenant text, kind text, args jsonb DEFAULT NULL, payload bytea DEFAULT NULL, item_id text DEFAULT NULL,
  zone text DEFAULT 'queue', priority int DEFAULT 100, delay_s float8 DEFAULT 0, unique_for_s float8 DEFAULT 0,
  OUT id uuid, OUT status text
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  given bytea;
  was smallint;
  ten_years_s CONSTANT float8 := 315360000;
BEGIN
  PERFORM fairlead.check_name('app', app), fairlead.check_name('tenant', tenant), fairlead.check_name('zone', zone),
    fairlead.check_name('kind', kind);
  IF octet_length(zone) > 78 OR zone LIKE E'%\x01%' THEN
    RAISE 'fairlead.enqueue: zone is %, and must be text of 1 to 78 bytes, without control characters', quote_literal(zone)
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF priority IS NULL OR priority NOT BETWEEN 0 AND 255 THEN
    RAISE 'fairlead.enqueue: priority is %, and must be 0 to 255', priority USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF delay_s IS NULL OR NOT delay_s BETWEEN 0 AND ten_years_s OR unique_for_s IS NULL OR NOT unique_for_s BETWEEN 0 AND ten_years_s THEN
    RAISE 'fairlead.enqueue: delay_s is %, unique_for_s is %; each must be 0 to ten years', delay_s, unique_for_s
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF args IS NOT NULL AND payload IS NOT NULL THEN
    RAISE 'fairlead.enqueue: args and payload are given; give one of them' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF greatest(octet_length(args::text), octet_length(payload)) > 1000000 THEN
    RAISE 'fairlead.enqueue: the payload has % bytes, and may have 1,000,000; store it elsewhere, and enqueue its key',
      greatest(octet_length(args::text), octet_length(payload)) USING ERRCODE = 'program_limit_exceeded';
  END IF;
  IF item_id IS NULL THEN
    IF unique_for_s > 0 THEN
      RAISE 'fairlead.enqueue: unique_for_s without an item_id: it is the item_id that stays taken'
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    id := encode(substring(int8send(fairlead.now_us()) FROM 2) || substring(uuid_send(gen_random_uuid()) FROM 8), 'hex')::uuid;
  ELSE
    IF octet_length(item_id) NOT BETWEEN 1 AND 1024 THEN
      RAISE 'fairlead.enqueue: item_id has % bytes, and must have 1 to 1,024', octet_length(item_id)
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    given := '\x02'::bytea || convert_to(item_id, 'UTF8');
    id := fairlead.id_of(app, tenant, zone, given);
  END IF;
  was := fairlead.put_one(id, app, tenant, zone, kind, priority::smallint, (delay_s * 1000000)::bigint,
    (unique_for_s * 1000000)::bigint, given, payload, args, NULL);
  status := coalesce((ARRAY['present', 'completed', 'dead letter'])[was + 1], 'enqueued');
END $$;

-- The id of an item that was given `given`: 16 bytes of a hash of that and the names of its queue.
CREATE OR REPLACE FUNCTION fairlead.id_of(app text, tenant text, zone text, given bytea) RETURNS uuid LANGUAGE sql IMMUTABLE
  SET search_path = pg_catalog, pg_temp
  RETURN encode(substring(sha256(
    convert_to(format('%s:%s%s:%s%s:%s', octet_length(app), app, octet_length(tenant), tenant, octet_length(zone), zone), 'UTF8')
    || given) FROM 1 FOR 16), 'hex')::uuid;

CREATE OR REPLACE FUNCTION fairlead.check_name(argument text, name text) RETURNS void LANGUAGE plpgsql IMMUTABLE
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF name IS NULL OR octet_length(name) NOT BETWEEN 1 AND 96 THEN
    RAISE 'fairlead.enqueue: % is %, and must be text of 1 to 96 bytes', argument, coalesce(quote_literal(name), 'NULL')
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
END $$;

-- What was committed since the snapshot `seen`: the queues, and in how long the earliest new item of each vests. Numbers
-- alone would miss a transaction that commits late. Each row also holds the snapshot to begin with next time; one row
-- without a queue if nothing came.
CREATE OR REPLACE FUNCTION fairlead.arrivals(INOUT seen pg_snapshot, OUT app text, OUT tenant text, OUT zone text, OUT in_us bigint)
  RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now_us bigint := fairlead.now_us();
  next xid8 := pg_snapshot_xmax(seen);
  running xid8[] := ARRAY(SELECT pg_snapshot_xip(seen));
BEGIN
  RETURN QUERY WITH came AS (
    SELECT i.app, i.tenant, i.zone, min(i.vesting_us) AS first_us FROM (
      SELECT * FROM fairlead.items WHERE xid >= next AND state < 1
      UNION ALL SELECT * FROM fairlead.items WHERE xid = ANY(running) AND xid < next AND state < 1) i GROUP BY 1, 2, 3)
  SELECT s.now, c.app, c.tenant, c.zone, c.first_us - now_us FROM (SELECT pg_current_snapshot() AS now) s LEFT JOIN came c ON true;
END $$;

-- Where items of queues may lie: each kind and priority that a queue has, and the vesting time to look from. What the
-- caller knows of the queue `place_ords` is taken as given (`kinds`, `priorities`, `froms_us`), and a loose index scan
-- finds what lies between: so a look steps over the entries of ended items only in places that are not known. Its upper
-- bounds are of one column: a scan goes on behind a bound of two. Items of the last second are looked for in any case, as
-- their transactions may have taken a while to commit.
CREATE OR REPLACE FUNCTION fairlead.places(
  apps text[], tenants text[], zones text[], place_ords int[], kinds text[], priorities smallint[], froms_us bigint[],
  OUT ord int, OUT kind text, OUT priority smallint, OUT from_us bigint
) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  late_us bigint := fairlead.now_us() - 1000000;
  behind_all text := repeat(chr(1114111), 25);  -- names have 96 bytes at most
BEGIN
  RETURN QUERY WITH RECURSIVE known AS MATERIALIZED (
    SELECT k.ord, k.kind COLLATE "C" AS kind, k.priority, least(k.from_us, late_us) AS from_us
    FROM unnest(place_ords, kinds, priorities, froms_us) k(ord, kind, priority, from_us)
  ), kind_gap AS MATERIALIZED (
    SELECT e.*, lead(e.kind, 1, behind_all) OVER (PARTITION BY e.ord ORDER BY e.kind) AS end_kind FROM (
      SELECT DISTINCT k.ord, k.kind FROM known k
      UNION ALL SELECT w.ord::int, ''::text FROM unnest(apps) WITH ORDINALITY w(app, ord)) e
  ), found AS (                         -- kinds between the known ones, each with its first priority
    SELECT g.ord, g.end_kind, g.kind, -1::smallint AS priority, false AS is_there FROM kind_gap g
    UNION ALL
    SELECT p.ord, p.end_kind, f.kind, f.priority, true FROM found p CROSS JOIN LATERAL (
      SELECT i.kind, i.priority FROM fairlead.items i
      WHERE (i.app, i.tenant, i.zone) = (apps[p.ord], tenants[p.ord], zones[p.ord]) AND i.state = 0
        AND i.kind > p.kind AND i.kind < p.end_kind ORDER BY i.kind, i.priority LIMIT 1) f
  ), priority_gap AS MATERIALIZED (
    SELECT e.*, lead(e.priority, 1, 32767::smallint) OVER (PARTITION BY e.ord, e.kind ORDER BY e.priority) AS end_priority
    FROM (
      SELECT f.ord, f.kind, f.priority, f.is_there FROM found f WHERE f.kind <> ''
      UNION ALL SELECT k.ord, k.kind, k.priority, false FROM known k) e
  ), pair AS (
    SELECT * FROM priority_gap
    UNION ALL
    SELECT p.ord, p.kind, f.priority, true, p.end_priority FROM pair p CROSS JOIN LATERAL (
      SELECT i.priority FROM fairlead.items i
      WHERE (i.app, i.tenant, i.zone, i.kind) = (apps[p.ord], tenants[p.ord], zones[p.ord], p.kind) AND i.state = 0
        AND i.priority > p.priority AND i.priority < p.end_priority ORDER BY i.priority LIMIT 1) f)
  SELECT p.ord, p.kind, p.priority, 0::bigint FROM pair p WHERE p.is_there UNION ALL SELECT * FROM known;
END $$;

-- Lease items of many queues: of the queue `ord` at most `ns[ord]`, of each kind at most its room. `place_ords` and what
-- follows: see `places`. `waited_us`: for how long it had been vested. `age_us`: since it was enqueued. `at_us`: the vesting
-- time. `deaths`, `started`: see the columns. The last row holds no item, but how many index entries were passed over: of
-- ended and of leased items.
CREATE OR REPLACE FUNCTION fairlead.dequeue(
  apps text[], tenants text[], zones text[], ns int[], place_ords int[], kinds text[], priorities smallint[],
  froms_us bigint[], room_kinds text[], rooms int[], lease uuid, lease_us bigint,
  OUT id uuid, OUT app text, OUT tenant text, OUT zone text, OUT kind text, OUT priority smallint, OUT waited_us bigint,
  OUT age_us bigint, OUT leases int, OUT expired int, OUT unique_us bigint, OUT given bytea, OUT payload bytea,
  OUT args jsonb, OUT record bytea, OUT deaths int, OUT started smallint, OUT at_us bigint, OUT passed bigint
) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now_us bigint := fairlead.now_us();
  read bigint := pg_stat_get_xact_tuples_returned('fairlead.items_vest'::regclass);
  chosen uuid[];
BEGIN
  WITH front AS MATERIALIZED (
    SELECT p.ord, ns[p.ord] AS n, p.kind, r.room, c.*
    FROM fairlead.places(apps, tenants, zones, place_ords, kinds, priorities, froms_us) p
    JOIN unnest(room_kinds, rooms) r(kind, room) ON r.kind = p.kind CROSS JOIN LATERAL (
      SELECT i.id, i.priority, i.vesting_us FROM fairlead.items i
      WHERE (i.app, i.tenant, i.zone) = (apps[p.ord], tenants[p.ord], zones[p.ord])
        AND (i.kind, i.priority) = (p.kind, p.priority) AND i.state = 0
        AND i.vesting_us >= p.from_us AND i.vesting_us <= now_us AND i.leased_until_us <= now_us
      ORDER BY i.vesting_us LIMIT least(ns[p.ord], r.room) FOR NO KEY UPDATE SKIP LOCKED) c
  ), turn AS (
    SELECT *, row_number() OVER (PARTITION BY ord ORDER BY priority, vesting_us, id) AS nth FROM front
  ), fair AS (
    SELECT *, row_number() OVER (PARTITION BY kind ORDER BY nth, ord) AS kth FROM turn WHERE nth <= n
  )
  SELECT array_agg(f.id) INTO chosen FROM fair f WHERE f.kth <= f.room;
  read := pg_stat_get_xact_tuples_returned('fairlead.items_vest'::regclass) - read;
  RETURN QUERY UPDATE fairlead.items i
    SET lease_id = lease, leased_until_us = now_us + lease_us, leases = i.leases + 1,
      expired = i.expired + (i.lease_id IS NOT NULL)::int, session = NULL,
      deaths = i.deaths + (i.lease_id IS NOT NULL AND i.started IN (1, 2))::int,
      started = CASE WHEN i.lease_id IS NOT NULL AND i.started > 1 THEN 3 ELSE 0 END
    WHERE i.id = ANY(chosen)
    RETURNING i.id, i.app, i.tenant, i.zone, i.kind, i.priority, now_us - i.vesting_us, now_us - i.enqueued_us, i.leases,
      i.expired, i.unique_us, i.given, i.payload, i.args, i.record, i.deaths, i.started, i.vesting_us, NULL::bigint;
  passed := read - coalesce(cardinality(chosen), 0);
  RETURN NEXT;
END $$;

-- Read items that are held under these leases, as `dequeue` returns them; `left_us`: until their leases end.
CREATE OR REPLACE FUNCTION fairlead.read_held(
  ids uuid[], lease_ids uuid[],
  OUT id uuid, OUT app text, OUT tenant text, OUT zone text, OUT kind text, OUT priority smallint, OUT waited_us bigint,
  OUT age_us bigint, OUT leases int, OUT expired int, OUT unique_us bigint, OUT given bytea, OUT payload bytea,
  OUT args jsonb, OUT record bytea, OUT deaths int, OUT started smallint, OUT lease_id uuid, OUT left_us bigint
) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now_us bigint := fairlead.now_us();
BEGIN
  RETURN QUERY SELECT i.id, i.app, i.tenant, i.zone, i.kind, i.priority, now_us - i.vesting_us, now_us - i.enqueued_us,
      i.leases, i.expired, i.unique_us, i.given, i.payload, i.args, i.record, i.deaths, i.started, i.lease_id,
      i.leased_until_us - now_us
    FROM unnest(ids, lease_ids) h(id, lease_id) CROSS JOIN LATERAL (
      SELECT * FROM fairlead.items x WHERE x.id = h.id AND x.lease_id = h.lease_id AND x.state < 1 LIMIT 1) i;
END $$;

-- What is left in queues that gave less than was asked for, in a statement of its own after the dequeue: by kind and
-- priority, whether something waits now, and in how long the next item vests or the next lease ends. No row: the queue
-- is empty, or nothing lies behind the places that the caller knows.
CREATE OR REPLACE FUNCTION fairlead.outlook(
  apps text[], tenants text[], zones text[], place_ords int[], kinds text[], priorities smallint[], froms_us bigint[],
  OUT ord int, OUT kind text, OUT priority smallint, OUT waits boolean, OUT next_us bigint
) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now_us bigint := fairlead.now_us();
BEGIN
  RETURN QUERY SELECT p.ord, p.kind, p.priority, w.waits IS NOT NULL, least(v.ends_us, l.vesting_us) - now_us
  FROM fairlead.places(apps, tenants, zones, place_ords, kinds, priorities, froms_us) p
  LEFT JOIN LATERAL (                   -- with LIMIT, as EXISTS may become a hashed scan of everything
    SELECT true AS waits FROM fairlead.items i
    WHERE (i.app, i.tenant, i.zone) = (apps[p.ord], tenants[p.ord], zones[p.ord])
      AND (i.kind, i.priority) = (p.kind, p.priority) AND i.state = 0 AND i.vesting_us >= p.from_us
      AND i.vesting_us <= now_us AND i.leased_until_us <= now_us ORDER BY i.vesting_us LIMIT 1) w ON true
  LEFT JOIN LATERAL (                   -- of what has vested, the first hundred: enough to know when to come back
    SELECT min(x.leased_until_us) FILTER (WHERE x.leased_until_us > now_us) AS ends_us FROM (
      SELECT i.leased_until_us FROM fairlead.items i
      WHERE (i.app, i.tenant, i.zone) = (apps[p.ord], tenants[p.ord], zones[p.ord])
        AND (i.kind, i.priority) = (p.kind, p.priority) AND i.state = 0 AND i.vesting_us >= p.from_us
        AND i.vesting_us <= now_us ORDER BY i.vesting_us LIMIT 100) x) v ON true
  LEFT JOIN LATERAL (
    SELECT i.vesting_us FROM fairlead.items i
    WHERE (i.app, i.tenant, i.zone) = (apps[p.ord], tenants[p.ord], zones[p.ord])
      AND (i.kind, i.priority) = (p.kind, p.priority) AND i.state = 0
      AND i.vesting_us > now_us ORDER BY i.vesting_us LIMIT 1) l ON true
  WHERE w.waits OR v.ends_us IS NOT NULL OR l.vesting_us IS NOT NULL;
END $$;

-- Whether items may be running: 0 leased, or locked by the transaction of its handler; 1 the lease has expired; 2 not.
CREATE OR REPLACE FUNCTION fairlead.running(ids uuid[], OUT ord int, OUT state smallint) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now_us bigint := fairlead.now_us();
BEGIN
  RETURN QUERY SELECT h.ord::int, (CASE
      WHEN i.lease_id IS NULL THEN 2
      WHEN i.leased_until_us > now_us OR f.is_free IS NULL THEN 0
      ELSE 1 END)::smallint
    FROM unnest(ids) WITH ORDINALITY AS h(id, ord)
    LEFT JOIN LATERAL (SELECT * FROM fairlead.items x WHERE x.id = h.id AND x.state < 1 LIMIT 1) i ON true
    LEFT JOIN LATERAL (
      SELECT true AS is_free FROM fairlead.items x WHERE x.id = i.id AND i.leased_until_us <= now_us
      LIMIT 1 FOR KEY SHARE SKIP LOCKED) f ON true;
END $$;

-- Lock the items that are held under these leases (NULL: under any, or none), and return their ids. An item that another
-- transaction has locked is left out: a user's open cancellation holds up nobody else.
CREATE OR REPLACE FUNCTION fairlead.hold(ids uuid[], lease_ids uuid[]) RETURNS uuid[] LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
  RETURN ARRAY(SELECT x.id FROM unnest(ids, lease_ids) h(id, lease_id) CROSS JOIN LATERAL (
    SELECT i.id FROM fairlead.items i
    WHERE i.id = h.id AND (h.lease_id IS NULL OR i.lease_id = h.lease_id) AND i.state < 1 FOR UPDATE SKIP LOCKED) x);
END $$;

-- How an operation on held items went: 0 done; 1 another holder has it; 2 it is gone; 3 another transaction has locked
-- it: try again.
CREATE OR REPLACE FUNCTION fairlead.outcomes(ids uuid[], lease_ids uuid[], held uuid[], OUT ord int, OUT outcome smallint)
  RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT h.ord::int, (CASE
      WHEN h.id = ANY(held) THEN 0
      WHEN x.state IS NULL OR x.state > 0 THEN 2
      WHEN h.lease_id IS NOT NULL AND x.lease_id IS DISTINCT FROM h.lease_id THEN 1
      ELSE 3 END)::smallint
    FROM unnest(ids, lease_ids) WITH ORDINALITY AS h(id, lease_id, ord)
    LEFT JOIN LATERAL (SELECT i.state, i.lease_id FROM fairlead.items i WHERE i.id = h.id LIMIT 1) x ON true;
END $$;

-- End items. One that is kept (`keeps_us` over 0) leaves its result, and its id stays taken for its `unique_us`; the others
-- are deleted.
CREATE OR REPLACE FUNCTION fairlead.complete(
  ids uuid[], lease_ids uuid[], keeps_us bigint[], results bytea[], OUT ord int, OUT outcome smallint
) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now_us bigint := fairlead.now_us();
  held uuid[] := fairlead.hold(ids, lease_ids);
  kept record;
  gone uuid[] := held;
BEGIN
  FOR kept IN SELECT k.* FROM unnest(ids, keeps_us, results) k(id, keep_us, result) WHERE k.keep_us > 0 AND k.id = ANY(held) LOOP
    UPDATE fairlead.items i SET state = 1, taken_until_us = now_us + i.unique_us, keep_until_us = now_us + kept.keep_us,
      record = kept.result, payload = NULL, args = NULL, traceback = NULL, lease_id = NULL, session = NULL
      WHERE i.id = kept.id;
    gone := array_remove(gone, kept.id);
  END LOOP;
  DELETE FROM fairlead.items i WHERE i.id = ANY(gone);
  RETURN QUERY SELECT * FROM fairlead.outcomes(ids, lease_ids, held);
END $$;

-- Let leases end `lease_us` from now. A shorter lease makes the item vest earlier. One that has expired is lost, even if
-- nobody else has the item: it does not count for its tenant's limit any more. `begun`: 1 its handler starts; 2 alone.
CREATE OR REPLACE FUNCTION fairlead.extend(
  ids uuid[], lease_ids uuid[], lease_us bigint, begun smallint DEFAULT NULL, OUT ord int, OUT outcome smallint
) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  held uuid[] := fairlead.hold(ids, lease_ids);
BEGIN
  RETURN QUERY SELECT * FROM fairlead.extended(ids, lease_ids, held, lease_us, begun, NULL);
END $$;

-- What `extend` and `claim` do with the items that they have locked. `session_id`: which claims them; NULL: as it is.
CREATE OR REPLACE FUNCTION fairlead.extended(
  ids uuid[], lease_ids uuid[], held uuid[], lease_us bigint, begun smallint, session_id uuid,
  OUT ord int, OUT outcome smallint
) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now_us bigint := fairlead.now_us();
  until_us bigint := now_us + lease_us;
  done uuid[];
BEGIN
  WITH changed AS (
    UPDATE fairlead.items i SET leased_until_us = until_us, started = coalesce(begun, i.started),
      session = coalesce(session_id, i.session),
      xid = CASE WHEN until_us < i.leased_until_us THEN pg_current_xact_id() ELSE i.xid END
    WHERE i.id = ANY(held) AND i.leased_until_us > now_us RETURNING i.id)
  SELECT array_agg(c.id) INTO done FROM changed c;
  RETURN QUERY SELECT o.ord, CASE WHEN o.outcome = 0 AND NOT coalesce(ids[o.ord] = ANY(done), false) THEN 1::smallint
    ELSE o.outcome END FROM fairlead.outcomes(ids, lease_ids, held) o;
END $$;

-- End leases: each item vests `delays_us` from now (NULL: when it vested before), with the history `records` (NULL: as it
-- is), `deaths` in a row (NULL: as they are, or none if its handler had started), and `tracebacks` (NULL: as it is; empty:
-- none). The reader sees it as an arrival: it may vest earlier than its pointer.
CREATE OR REPLACE FUNCTION fairlead.requeue(
  ids uuid[], lease_ids uuid[], delays_us bigint[], records bytea[], deaths int[] DEFAULT NULL,
  tracebacks bytea[] DEFAULT NULL, OUT ord int, OUT outcome smallint
) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now_us bigint := fairlead.now_us();
  held uuid[] := fairlead.hold(ids, lease_ids);
  one record;
BEGIN
  FOR one IN SELECT r.* FROM unnest(ids, delays_us, records, requeue.deaths, tracebacks)
      r(id, delay_us, record, deaths, traceback) WHERE r.id = ANY(held)
  LOOP
    UPDATE fairlead.items i SET lease_id = NULL, leased_until_us = 0, session = NULL, xid = pg_current_xact_id(),
      vesting_us = coalesce(now_us + one.delay_us, i.vesting_us), record = coalesce(one.record, i.record), started = 0,
      traceback = nullif(coalesce(one.traceback, i.traceback), ''),
      deaths = coalesce(one.deaths, CASE WHEN i.started IN (1, 2) THEN 0 ELSE i.deaths END) WHERE i.id = one.id;
  END LOOP;
  PERFORM fairlead.ring();
  RETURN QUERY SELECT * FROM fairlead.outcomes(ids, lease_ids, held);
END $$;

-- Make items dead letters; `records` say why.
CREATE OR REPLACE FUNCTION fairlead.dead_letter(ids uuid[], lease_ids uuid[], records bytea[], OUT ord int, OUT outcome smallint)
  RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now_us bigint := fairlead.now_us();
  held uuid[] := fairlead.hold(ids, lease_ids);
  one record;
BEGIN
  FOR one IN SELECT r.* FROM unnest(ids, records) r(id, record) WHERE r.id = ANY(held) LOOP
    UPDATE fairlead.items i SET state = 2, keep_until_us = now_us, lease_id = NULL, session = NULL, started = 0, deaths = 0,
      record = one.record, traceback = NULL WHERE i.id = one.id;
  END LOOP;
  RETURN QUERY SELECT * FROM fairlead.outcomes(ids, lease_ids, held);
END $$;

-- The next slice of queues that hold items, behind one of them: a loose index scan, for a full look.
CREATE OR REPLACE FUNCTION fairlead.queues(after_app text, after_tenant text, after_zone text, n int, OUT app text, OUT tenant text, OUT zone text)
  RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
  app := after_app; tenant := after_tenant; zone := after_zone;
  FOR _ IN 1 .. n LOOP
    SELECT i.app, i.tenant, i.zone INTO app, tenant, zone FROM fairlead.items i
      WHERE (i.app, i.tenant, i.zone) > (queues.app, queues.tenant, queues.zone) AND i.state = 0
      ORDER BY i.app, i.tenant, i.zone LIMIT 1;
    EXIT WHEN NOT FOUND;
    RETURN NEXT;
  END LOOP;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fairlead FROM PUBLIC;
