-- A person looks for calls of one tool, or for those that have been in their state for too long.
SET LOCAL ROLE tcl_owner;

-- As `list_calls`, and by tool and by seconds since the call came into its state. With one of these it
-- looks through every call of the state, so give a state when the ledger is large.
CREATE FUNCTION tcl.find_calls(
  p_state tcl.call_state, p_tenant text, p_tool text, p_older_s double precision,
  p_newer_s double precision, p_limit integer
)
RETURNS TABLE (
  tenant text, idempotency_key text, response_id text, tool text, state tcl.call_state,
  effect tcl.effect_class, fence bigint, created_at timestamptz, since timestamptz, retry text
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT l.* FROM tcl.list_calls(
      p_state, p_tenant,
      CASE WHEN COALESCE(p_tool, p_older_s::text, p_newer_s::text) IS NULL THEN p_limit
           ELSE 2147483647 END) l
    WHERE (p_tool IS NULL OR l.tool = p_tool)
      AND (p_older_s IS NULL OR l.since <= clock_timestamp() - make_interval(secs => p_older_s))
      AND (p_newer_s IS NULL OR l.since >= clock_timestamp() - make_interval(secs => p_newer_s))
    ORDER BY l.created_at DESC LIMIT p_limit
$$;

GRANT EXECUTE ON FUNCTION
  tcl.find_calls(tcl.call_state, text, text, double precision, double precision, integer)
TO tcl_executor, tcl_approver, tcl_operator, tcl_application, tcl_reader, tcl_reconciler;

RESET ROLE;
