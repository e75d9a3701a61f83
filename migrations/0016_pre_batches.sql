-- Many questions in one transaction: arrays in, one row out for each item (counted from 1, in the order
-- asked). The functions of one question answer them, so a batch means nothing else than its items.
-- Keys are taken in order: two batches never wait for each other in a circle.
-- An item whose values are refused has a `refusal` (SQLSTATE) and no verdict, leaves no trace and
-- touches no neighbour. Any other error ends the batch, and then nothing of it has happened.
SET LOCAL ROLE tcl_owner;

CREATE TYPE tcl.claim_answer AS (
  item integer, verdict text, fence bigint, state tcl.call_state, effect tcl.effect_class,
  retry text, refusal text
);
CREATE TYPE tcl.yes_or_no AS (item integer, ok boolean, why text, refusal text);

CREATE FUNCTION tcl.claim_many(
  p_tenants text[], p_requests text[], p_responses text[], p_calls text[], p_tools text[],
  p_effects text[], p_hashes bytea[], p_owners text[], p_leases interval[],
  p_emitted timestamptz[], p_deadlines timestamptz[], p_max integer[],
  p_topics text[], p_partitions integer[], p_offsets bigint[]
) RETURNS SETOF tcl.claim_answer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  answers tcl.claim_answer[];
BEGIN
  BEGIN
    answers := ARRAY(
      SELECT (o.i, c.verdict, c.fence, c.state, c.effect, c.retry, NULL)::tcl.claim_answer
        FROM (
          SELECT u.* FROM unnest(
            p_tenants, p_requests, p_responses, p_calls, p_tools, p_effects, p_hashes, p_owners,
            p_leases, p_emitted, p_deadlines, p_max, p_topics, p_partitions, p_offsets
          ) WITH ORDINALITY u(tenant, request, response, call, tool, effect, hash, owner, lease,
                              emitted, deadline, most, topic, part, off, i)
            ORDER BY u.tenant COLLATE "C", (u.request || ':' || u.call) COLLATE "C", u.i
            OFFSET 0
        ) o CROSS JOIN LATERAL tcl.claim(
          o.tenant, o.request, o.response, o.call, o.tool, o.effect::tcl.effect_class, o.hash,
          o.owner, o.lease, o.emitted, o.deadline, o.most, o.topic, o.part, o.off
        ) c
    );
  EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    IF cardinality(p_tenants) = 1 THEN
      answers := ARRAY[(1, NULL, NULL, NULL, NULL, NULL, SQLSTATE)::tcl.claim_answer];
    ELSE
      answers := ARRAY(
        SELECT (o.i, c.verdict, c.fence, c.state, c.effect, c.retry, c.refusal)::tcl.claim_answer
          FROM (
            SELECT u.i FROM unnest(p_tenants, p_requests, p_calls)
                WITH ORDINALITY u(tenant, request, call, i)
              ORDER BY u.tenant COLLATE "C", (u.request || ':' || u.call) COLLATE "C", u.i
              OFFSET 0
          ) o CROSS JOIN LATERAL tcl.claim_many(
            p_tenants[o.i:o.i], p_requests[o.i:o.i], p_responses[o.i:o.i], p_calls[o.i:o.i],
            p_tools[o.i:o.i], p_effects[o.i:o.i], p_hashes[o.i:o.i], p_owners[o.i:o.i],
            p_leases[o.i:o.i], p_emitted[o.i:o.i], p_deadlines[o.i:o.i], p_max[o.i:o.i],
            p_topics[o.i:o.i], p_partitions[o.i:o.i], p_offsets[o.i:o.i]
          ) c
      );
    END IF;
  END;
  RETURN QUERY SELECT * FROM unnest(answers) a ORDER BY a.item;
END
$$;

-- No effect may start before this transaction has been committed.
CREATE FUNCTION tcl.begin_many(
  p_tenants text[], p_keys text[], p_fences bigint[], p_leases interval[], p_decisions text[],
  p_revs text[], p_need_approval boolean[], p_redrives interval[]
) RETURNS SETOF tcl.yes_or_no
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  answers tcl.yes_or_no[];
BEGIN
  BEGIN
    answers := ARRAY(
      SELECT (o.i, b.ok, b.why, NULL)::tcl.yes_or_no
        FROM (
          SELECT u.* FROM unnest(
            p_tenants, p_keys, p_fences, p_leases, p_decisions, p_revs, p_need_approval, p_redrives
          ) WITH ORDINALITY u(tenant, k, fence, lease, decision, rev, need, redrive, i)
            ORDER BY u.tenant COLLATE "C", u.k COLLATE "C", u.i OFFSET 0
        ) o CROSS JOIN LATERAL tcl.begin_effect(
          o.tenant, o.k, o.fence, o.lease, o.decision, o.rev, COALESCE(o.need, false), o.redrive
        ) b
    );
  EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    IF cardinality(p_tenants) = 1 THEN
      answers := ARRAY[(1, NULL, NULL, SQLSTATE)::tcl.yes_or_no];
    ELSE
      answers := ARRAY(
        SELECT (o.i, b.ok, b.why, b.refusal)::tcl.yes_or_no
          FROM (
            SELECT u.i FROM unnest(p_tenants, p_keys) WITH ORDINALITY u(tenant, k, i)
              ORDER BY u.tenant COLLATE "C", u.k COLLATE "C", u.i OFFSET 0
          ) o CROSS JOIN LATERAL tcl.begin_many(
            p_tenants[o.i:o.i], p_keys[o.i:o.i], p_fences[o.i:o.i], p_leases[o.i:o.i],
            p_decisions[o.i:o.i], p_revs[o.i:o.i], p_need_approval[o.i:o.i], p_redrives[o.i:o.i]
          ) b
      );
    END IF;
  END;
  RETURN QUERY SELECT * FROM unnest(answers) a ORDER BY a.item;
END
$$;

-- Not for `transactional` calls that succeeded: their effect shares the transaction of their own
-- `finish`, and one that is fenced has the refusal TC001.
CREATE FUNCTION tcl.finish_many(
  p_tenants text[], p_keys text[], p_fences bigint[], p_outcomes text[], p_bodies bytea[],
  p_refs text[], p_hashes bytea[], p_errors text[], p_usages text[]
) RETURNS SETOF tcl.yes_or_no
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  answers tcl.yes_or_no[];
BEGIN
  BEGIN
    answers := ARRAY(
      SELECT (o.i, f.ok, f.why, NULL)::tcl.yes_or_no
        FROM (
          SELECT u.* FROM unnest(
            p_tenants, p_keys, p_fences, p_outcomes, p_bodies, p_refs, p_hashes, p_errors, p_usages
          ) WITH ORDINALITY u(tenant, k, fence, outcome, body, ref, hash, error, usage, i)
            ORDER BY u.tenant COLLATE "C", u.k COLLATE "C", u.i OFFSET 0
        ) o CROSS JOIN LATERAL tcl.finish(
          o.tenant, o.k, o.fence, o.outcome::tcl.call_state, o.body, o.ref, o.hash, o.error,
          COALESCE(o.usage, '[]')::jsonb
        ) f
    );
  EXCEPTION WHEN data_exception OR integrity_constraint_violation OR SQLSTATE 'TC001' THEN
    IF cardinality(p_tenants) = 1 THEN
      answers := ARRAY[(1, NULL, NULL, SQLSTATE)::tcl.yes_or_no];
    ELSE
      answers := ARRAY(
        SELECT (o.i, f.ok, f.why, f.refusal)::tcl.yes_or_no
          FROM (
            SELECT u.i FROM unnest(p_tenants, p_keys) WITH ORDINALITY u(tenant, k, i)
              ORDER BY u.tenant COLLATE "C", u.k COLLATE "C", u.i OFFSET 0
          ) o CROSS JOIN LATERAL tcl.finish_many(
            p_tenants[o.i:o.i], p_keys[o.i:o.i], p_fences[o.i:o.i], p_outcomes[o.i:o.i],
            p_bodies[o.i:o.i], p_refs[o.i:o.i], p_hashes[o.i:o.i], p_errors[o.i:o.i],
            p_usages[o.i:o.i]
          ) f
      );
    END IF;
  END;
  RETURN QUERY SELECT * FROM unnest(answers) a ORDER BY a.item;
END
$$;

GRANT EXECUTE ON FUNCTION
  tcl.claim_many(text[], text[], text[], text[], text[], text[], bytea[], text[], interval[],
                 timestamptz[], timestamptz[], integer[], text[], integer[], bigint[]),
  tcl.begin_many(text[], text[], bigint[], interval[], text[], text[], boolean[], interval[]),
  tcl.finish_many(text[], text[], bigint[], text[], bytea[], text[], bytea[], text[], text[])
TO tcl_executor;

RESET ROLE;
